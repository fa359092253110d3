package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/mqttlb/mqttlb/pkg/config"
)

func TestExitCodesTellWhoseFaultItIs(t *testing.T) {
	for _, row := range []struct {
		name string
		args []string
		err  error // of the command
		want int
	}{
		{"done", []string{"do"}, nil, ExitOK},
		{"help", []string{"--help"}, nil, ExitOK},
		{"could not", []string{"do"}, Fail(errors.New("disk full")), ExitFailure},
		{"could not, further up", []string{"do"}, fmt.Errorf("do: %w", Fail(errors.New("disk full"))), ExitFailure},
		{"a code of its own", []string{"do"}, Exit(4, errors.New("nobody answers")), 4},
		{"a code and no more", []string{"do"}, Exit(3, nil), 3},
		{"wrong configuration", []string{"do"}, &config.Problems{List: []config.Problem{{File: "c.yaml", What: "is wrong"}}}, ExitUsage},
		{"wrong flag", []string{"do", "--fast"}, nil, ExitUsage},
		{"wrong command", []string{"dont"}, nil, ExitUsage},
	} {
		t.Run(row.name, func(t *testing.T) {
			root := &cobra.Command{Use: "try", Version: "1"}
			root.AddCommand(&cobra.Command{Use: "do", RunE: func(*cobra.Command, []string) error { return row.err }}, Version())
			root.SetOut(new(strings.Builder))
			if got := Run(root, row.args); got != row.want {
				t.Errorf("exit code %d, want %d", got, row.want)
			}
		})
	}
	if Fail(nil) != nil {
		t.Error("nothing went wrong, and Fail gives an error")
	}
}

func TestVersionNamesTheProgram(t *testing.T) {
	root := &cobra.Command{Use: "try", Version: "1.2"}
	root.AddCommand(Version())
	var out strings.Builder
	root.SetOut(&out)
	if Run(root, []string{"version"}) != ExitOK || out.String() != "try 1.2\n" {
		t.Errorf("got %q", out.String())
	}
}

// keys is a configuration that only knows its keys.
type keys struct{}

func (keys) Problem(key, what, mend string) config.Problem {
	return config.Problem{File: "c.yaml", Key: key, What: what, Mend: mend}
}

func TestBinderOpensAllSocketsOrNone(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()

	b := Binder{Config: keys{}}
	first := b.Listen(context.Background(), "127.0.0.1:0", "listeners[0].address")
	if off := b.Listen(context.Background(), "", "admin.address"); off != nil {
		t.Errorf("%s is open for an empty address", off.Addr())
	}
	if err := b.Err(); err != nil {
		t.Fatal(err)
	}
	if b.Listen(context.Background(), taken.Addr().String(), "health_endpoint.http") != nil {
		t.Error("a socket on an address that is taken")
	}
	want := "c.yaml: health_endpoint.http: cannot listen on " + taken.Addr().String() + ": another process listens there; stop it or choose another port"
	if err := b.Err(); err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if _, err := first.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the first socket is left open: %v", err)
	}
}

func TestTLSFilesTellTheKeyOfWhatIsWrong(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	files := TLSFiles{Config: keys{}}
	pair := []config.Certificate{{Cert: empty, Key: empty}}
	files.Listener("plain", config.TLS{Mode: config.TLSOff, Certificates: pair}, "listeners[0].tls")
	files.Listener("tls", config.TLS{Mode: config.TLSTerminate, Certificates: pair, Verify: config.VerifyRequired, ClientCA: empty}, "listeners[1].tls")
	var told []string
	for _, p := range files.Problems {
		told = append(told, p.Key)
	}
	if want := []string{"listeners[1].tls.certificates[0].cert", "listeners[1].tls.client_ca"}; !slices.Equal(told, want) {
		t.Errorf("problems at %v, want %v", told, want)
	}
	if len(files.Listeners) != 0 {
		t.Errorf("a listener without a certificate: %v", files.Listeners)
	}
}

// What is wrong in the settings themselves is told once, by the check of the
// configuration.
func TestTLSFilesLeaveTheSettingsToTheCheckOfTheConfiguration(t *testing.T) {
	for name, l := range map[string]config.TLS{
		"no certificate": {Mode: config.TLSTerminate},
		"no client_ca":   {Mode: config.TLSTerminate, Verify: config.VerifyRequired},
	} {
		files := TLSFiles{Config: keys{}}
		files.Listener("tls", l, "listeners[0].tls")
		if len(files.Problems) > 0 {
			t.Errorf("%s: %v", name, files.Problems)
		}
	}
}

func TestAConfigurationOfTheOtherProgramIsSaidToBeOne(t *testing.T) {
	mine := &config.Problems{List: []config.Problem{{File: "b.yaml", Line: 3, Key: "data", What: "unknown key"}}}
	for _, row := range []struct {
		name     string
		err      error
		path     string
		otherErr error
		hint     bool
	}{
		{"the other's", mine, "b.yaml", nil, true},
		{"nobody's", mine, "b.yaml", errors.New("unknown key"), false},
		{"the built-in one", mine, "", nil, false},
		{"something else is wrong", errors.New("out of luck"), "b.yaml", nil, false},
	} {
		err := HintOther(row.err, row.path, "broker", func() error { return row.otherErr })
		if !strings.HasPrefix(err.Error(), row.err.Error()) {
			t.Errorf("%s: what was told is lost: %v", row.name, err)
		}
		if want := "\nb.yaml: would do as a configuration of broker; if it is meant to be one, run: broker check -c b.yaml"; strings.HasSuffix(err.Error(), want) != row.hint {
			t.Errorf("%s: %v", row.name, err)
		}
	}
	if HintOther(nil, "b.yaml", "broker", func() error { return nil }) != nil {
		t.Error("an error where all is well")
	}
}
