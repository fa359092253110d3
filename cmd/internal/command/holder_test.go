package command

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestTheHolderOfAPortIsNamed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("reads /proc")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if got, want := Holder(port), fmt.Sprintf("process %d (", os.Getpid()); !strings.HasPrefix(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	l.Close()
	if got := Holder(port); got != "" {
		t.Errorf("nobody listens any more, got %q", got)
	}
}
