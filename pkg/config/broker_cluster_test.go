package config

import (
	"reflect"
	"strings"
	"testing"
)

func TestABrokerIsAloneUnlessItsFileSaysOtherwise(t *testing.T) {
	if c := DefaultBroker().Cluster; c != nil {
		t.Errorf("the built-in default is in a cluster: %+v", c)
	}
	b, problems := load(t, BrokerLoader{}, "c.yaml", minimalBroker+
		`node: {name: b1}`+"\n"+`cluster: {listen: "127.0.0.1:6221", join: ["localhost:6222", "[::1]:6223"]}`)
	if problems != "" {
		t.Fatal(problems)
	}
	want := &Cluster{Name: "brokers", Size: 3, Listen: "127.0.0.1:6221", Join: []string{"localhost:6222", "[::1]:6223"}}
	if !reflect.DeepEqual(b.Cluster, want) {
		t.Errorf("got %+v, want %+v", b.Cluster, want)
	}
}

func TestClusterValues(t *testing.T) {
	b, err := BrokerLoader{SkipFiles: true}.Load("../../configs/broker.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const dir = "/etc/broker/tls/"
	want := &Cluster{
		Name: "plant-7", Size: 5, Listen: "10.0.0.11:6222", Join: []string{"10.0.0.11:6222", "10.0.0.12:6222", "10.0.0.13:6222", "10.0.0.14:6222", "10.0.0.15:6222"},
		TLS: &ClusterTLS{Certificate: dir + "node.crt", Key: dir + "node.key", CA: dir + "nodes-ca.crt"},
	}
	if !reflect.DeepEqual(b.Cluster, want) {
		t.Errorf("got %+v, want %+v", b.Cluster, want)
	}
}

func TestJoinOnTheCommandLineWins(t *testing.T) {
	loader := BrokerLoader{SkipFiles: true, Overrides: []Override{Join([]string{"10.0.0.1:6222", "10.0.0.2:6222"})}}
	b, err := loader.Load("../../configs/broker-cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"10.0.0.1:6222", "10.0.0.2:6222"}; !reflect.DeepEqual(b.Cluster.Join, want) {
		t.Errorf("join %v, want %v", b.Cluster.Join, want)
	}

	loader.Overrides = []Override{Join(nil)} // the flag was not given
	b, err = loader.Load("../../configs/broker-cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(b.Cluster.Join) != 3 {
		t.Errorf("join %v, want the file's", b.Cluster.Join)
	}
}

func TestClusterMistakesAreNamedByLineAndPath(t *testing.T) {
	const (
		named  = minimalBroker + "node: {name: b1}\n"
		beside = `join: ["127.0.0.1:6222", "127.0.0.1:6223", "127.0.0.1:6224"]`
		near   = `listen: "127.0.0.1:6222", ` + beside
		tls    = `, tls: {certificate: a.crt, key: a.key, ca: ca.crt}`
	)
	for _, row := range []struct{ name, content, want string }{
		{"on loopback", named + "cluster: {" + near + "}", ""},
		{"with TLS", named + `cluster: {join: ["b2:6222", "b3:6222"]` + tls + "}", ""},
		{"without a name of its own", minimalBroker + "cluster: {" + near + "}",
			`c.yaml: node.name: is missing, but a node of a cluster needs a name that no other has; write e.g. "broker-1", and keep it as long as the data`},
		{"even", named + "cluster: {size: 4, " + near + "}",
			`c.yaml:4: cluster.size: 4 nodes bear the loss of one, as 3 do; write 3, or 5 to bear the loss of two`},
		{"of one", named + "cluster: {size: 1, " + near + "}",
			`c.yaml:4: cluster.size: 1 is out of bounds; write a value from 3 to 5`},
		{"listening nowhere", named + `cluster: {listen: "", ` + beside + "}",
			`c.yaml:4: cluster.listen: is empty, but the other nodes connect here; write host:port, e.g. "127.0.0.1:6222", or ":6222" for all addresses`},
		{"listening anywhere", named + `cluster: {listen: "127.0.0.1:0", ` + beside + "}",
			`c.yaml:4: cluster.listen: port 0 is another one at each start, and the other nodes could not know it; write e.g. ":6222"`},
		{"finding nobody", named + `cluster: {listen: "127.0.0.1:6222"}`,
			`c.yaml:4: cluster.join: is missing, and so this node finds no other; list where all nodes listen, the same list on each, or use --join`},
		{"finding itself", named + `cluster: {listen: "127.0.0.1:6222", join: "127.0.0.1:6222"}`,
			`c.yaml:4: cluster.join: names 0 of the 2 other nodes; list where all nodes listen, the same list on each`},
		{"finding one", named + `cluster: {size: 5, ` + near + "}",
			`c.yaml:4: cluster.join: names 2 of the 4 other nodes; list where all nodes listen, the same list on each`},
		{"with a name that is an address", minimalBroker + "node: {name: 'b1:1883'}\ncluster: {" + near + "}",
			`c.yaml:3: node.name: holds ':', which a name in a cluster can't have; use letters, digits and . _ -`},
		{"without a port to join", named + `cluster: {listen: "127.0.0.1:6222", join: ["10.0.0.2"]}`,
			`c.yaml:4: cluster.join[0]: "10.0.0.2" has no port; write host:port, e.g. "10.0.0.2:1883"`},
		{"open to the network", named + "cluster: {" + beside + "}",
			`c.yaml:4: cluster.tls: is missing, but listen (:6222) can be reached by other machines, and whoever gets in as a node reads and writes everything; add tls with certificate, key and ca, or use addresses of 127.0.0.0/8 alone`},
		{"joining over the network", named + `cluster: {listen: "127.0.0.1:6222", join: ["127.0.0.1:6223", "b3:6222"]}`,
			`c.yaml:4: cluster.tls: is missing, but join[1] (b3:6222) can be reached by other machines, and whoever gets in as a node reads and writes everything; add tls with certificate, key and ca, or use addresses of 127.0.0.0/8 alone`},
		{"half of TLS", named + "cluster: {" + near + ", tls: {certificate: a.crt}}",
			"c.yaml:4: cluster.tls.key: is missing; write the path of a PEM file\nc.yaml:4: cluster.tls.ca: is missing; write the path of a PEM file"},
		{"on the clients' port", named + `cluster: {listen: ":1883", ` + beside + tls + "}",
			`c.yaml:4: cluster.listen: ":1883" is taken by listeners[0].address (127.0.0.1:1883) already; choose another port`},
		{"NATS' word", named + `cluster: {routes: [], ` + near + "}",
			`c.yaml:4: cluster.routes: unknown key; it is called "join" here`},
	} {
		t.Run(row.name, func(t *testing.T) {
			if _, got := load(t, BrokerLoader{SkipFiles: true}, "c.yaml", row.content); got != row.want {
				t.Errorf("got\n%s\nwant\n%s", got, row.want)
			}
		})
	}
}

func TestAWrongJoinOnTheCommandLineIsNamed(t *testing.T) {
	for _, row := range []struct {
		name, content string
		join          []string
		want          string
	}{
		{"no port", "node: {name: b1}\ncluster: {listen: '127.0.0.1:6222'}\n", []string{"127.0.0.1"},
			`flag --join: cluster.join[0]: "127.0.0.1" has no port; write host:port, e.g. "127.0.0.1:1883"`},
		{"a file without a cluster", "", []string{"127.0.0.1:6222", "127.0.0.1:6223"},
			"c.yaml: node.name: is missing, but a node of a cluster needs a name that no other has; write e.g. \"broker-1\", and keep it as long as the data\n" +
				"flag --join: cluster.tls: is missing, but listen (:6222) can be reached by other machines, and whoever gets in as a node reads and writes everything; add tls with certificate, key and ca, or use addresses of 127.0.0.0/8 alone"},
	} {
		t.Run(row.name, func(t *testing.T) {
			loader := BrokerLoader{Overrides: []Override{Join(row.join)}}
			if _, got := load(t, loader, "c.yaml", minimalBroker+row.content); got != row.want {
				t.Errorf("got\n%s\nwant\n%s", got, row.want)
			}
		})
	}
}

// Half a pair says nothing of the other half.
func TestClusterFilesMustBeReadable(t *testing.T) {
	cert := write(t, "node.crt", "")
	_, got := load(t, BrokerLoader{Also: func(*Broker) []Problem {
		return []Problem{{Key: "cluster.tls.certificate", What: "does not fit its key"}}
	}}, "c.yaml", minimalBroker+"node: {name: b1}\ncluster: {join: ['b2:6222', 'b3:6222'], tls: {certificate: "+cert+", key: a.key, ca: ca.crt}}")
	var keys []string
	for line := range strings.Lines(got) {
		keys = append(keys, strings.Split(line, ": ")[1])
	}
	if want := []string{"cluster.tls.key", "cluster.tls.ca"}; !reflect.DeepEqual(keys, want) {
		t.Errorf("problems at %v, want %v:\n%s", keys, want, got)
	}
}
