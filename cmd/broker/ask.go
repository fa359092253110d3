package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// askTimeout bounds one question to a broker's admin address. Behind it the
// broker may have to ask its cluster.
const askTimeout = 15 * time.Second

// asker keeps no connection: a command asks once or now and then.
var asker = &http.Client{Timeout: askTimeout, Transport: &http.Transport{DisableKeepAlives: true}}

// refusal is an answer that says no: what the broker says, and its HTTP status.
type refusal struct {
	status int
	said   string
}

func (r *refusal) Error() string { return r.said }

// ask puts a question to the admin address of a broker. The answer of /readyz
// counts whatever its status.
func ask(ctx context.Context, method, address, path string, body, answer any) error {
	var send io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return err
		}
		send = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+reachable(address)+path, send)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := asker.Do(req)
	if err != nil {
		return fmt.Errorf("no broker answers at %s: %w; is it running, and is that its admin.address? Name another with --admin, or its file with -c", address, cause(err))
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 8<<20))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", address, err)
	}
	if resp.StatusCode >= 400 && path != "/readyz" {
		var no struct{ Error string }
		if json.Unmarshal(data, &no) != nil || no.Error == "" {
			no.Error = fmt.Sprintf("%s answers %s: is it the admin address of a broker of this version?", address, resp.Status)
		}
		return &refusal{resp.StatusCode, no.Error}
	}
	if answer == nil || len(data) == 0 {
		return nil
	}
	if err := json.Unmarshal(data, answer); err != nil {
		return fmt.Errorf("%s does not answer as a broker does: %w", address, err)
	}
	return nil
}

// reachable is where an address that may stand for all of this machine is asked.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if ip := net.ParseIP(host); err == nil && (host == "" || ip != nil && ip.IsUnspecified()) {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return address
}

// cause leaves out the method and URL that net/http puts in front.
func cause(err error) error {
	if inner := errors.Unwrap(err); inner != nil {
		return inner
	}
	return err
}
