package affinity

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

// C016: open-telemetry/opentelemetry-collector-contrib#49585 and others. Places
// that hung on the order of the list, or on how collisions were settled, let
// replicas send one client to different brokers.
func TestReplicasAgree(t *testing.T) {
	specs := []backend.Spec{
		{Name: "a"}, {Name: "b"}, {Name: "c", Weight: 150}, {Name: "d", Weight: 50}, {Name: "e"},
	}
	fresh := func() (all []*backend.Backend) {
		for _, s := range specs {
			all = append(all, up(s))
		}
		return all
	}
	first := build(t, fresh(), Options{})

	reversed := fresh()
	slices.Reverse(reversed)

	shuffled := fresh()
	rand.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })

	// Members came and went, moved to other addresses, were reweighted, and
	// carry connections; in the end the set is the same.
	lived := []*backend.Backend{up(backend.Spec{Name: "x"}), up(backend.Spec{Name: "c", Weight: 7, Address: "10.9.9.9:1"})}
	build(t, lived, Options{})
	lived[1].Acquire()
	lived[1] = lived[1].With(backend.Spec{Name: "c", Weight: 150, Address: "10.0.0.3:1883"})
	lived = append(lived[1:], up(specs[4]), up(specs[0]), up(specs[3]), up(specs[1]))
	lived[2].SetHealth(false, "refused")

	for name, all := range map[string][]*backend.Backend{"reversed": reversed, "shuffled": shuffled, "with a history": lived} {
		t.Run(name, func(t *testing.T) {
			table := build(t, all, Options{})
			for _, form := range forms {
				for _, key := range form.ids(10_000) {
					if want, got := order(first, key), order(table, key); !slices.Equal(want, got) {
						t.Fatalf("%q goes to %v here and to %v there", key, want, got)
					}
				}
			}
		})
	}
}

var update = flag.Bool("update", false, "write the golden files anew")

// A change of the ring moves the clients of every fleet at its next upgrade, and
// splits the fleets whose replicas are upgraded one by one. If this test fails,
// do not write the file anew: mend the ring, or plan that move, tell operators,
// and amend docs/adr/0002-ring.md.
func TestOwnersStayTheSameFromReleaseToRelease(t *testing.T) {
	table := build(t, []*backend.Backend{
		up(backend.Spec{Name: "broker-1"}),
		up(backend.Spec{Name: "broker-2"}),
		up(backend.Spec{Name: "broker-3", Weight: 200}),
		up(backend.Spec{Name: "mqtt-a.example.com:1883", Weight: 50}),
		up(backend.Spec{Name: "münchen", Weight: 400}),
	}, Options{})
	var got bytes.Buffer
	for i, n := range []int{334, 333, 333} {
		for _, id := range forms[i].ids(n) {
			fmt.Fprintf(&got, "%s\t%s\n", id, strings.Join(order(table, id), " "))
		}
	}
	file := filepath.Join("testdata", "owners.golden")
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Equal(want, got.Bytes()) {
		return
	}
	was, is := strings.Split(string(want), "\n"), strings.Split(got.String(), "\n")
	moved, example := 0, ""
	for i := range min(len(was), len(is)) {
		if was[i] != is[i] {
			moved++
			example = fmt.Sprintf("was %q\n is %q", was[i], is[i])
		}
	}
	t.Fatalf("%d of %d ids go another way than in the last release, such as\n%s", moved, len(was)-1, example)
}
