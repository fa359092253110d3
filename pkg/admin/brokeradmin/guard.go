package brokeradmin

import (
	"errors"
	"log/slog"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// changes lets a request change something only if it comes from this machine,
// from a program rather than from a page in a browser here, and tells the log.
func (a *API) changes(f http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if err := mayChange(r); err != nil {
			a.Log.Warn("change refused on the admin address", "method", r.Method, "path", r.URL.Path, "from", r.RemoteAddr, "err", err)
			refuse(w, http.StatusForbidden, err)
			return
		}
		a.Log.Info("asked on the admin address", slog.String("method", r.Method), slog.String("path", r.URL.Path), slog.String("from", r.RemoteAddr))
		f(w, r)
	}
}

var (
	errElsewhere = errors.New("changes are taken from this machine only: run the command there, or come by ssh")
	errProxied   = errors.New("changes are taken from this machine only, and this one was passed on for somebody else")
	errName      = errors.New("changes are taken under an address of this machine or localhost only, so that no page in a browser here can make them")
	errForm      = errors.New("changes are taken as Content-Type: application/json only, so that no page in a browser here can make them")
)

// mayChange: a browser sends a page's JSON elsewhere only after it has asked, and
// is never told yes; a name that a page has made to point here is not ours.
func mayChange(r *http.Request) error {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !from.Addr().Unmap().IsLoopback() {
		return errElsewhere
	}
	for _, h := range []string{"Forwarded", "X-Forwarded-For", "X-Real-Ip"} {
		if r.Header.Get(h) != "" {
			return errProxied
		}
	}
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if _, err := netip.ParseAddr(host); err != nil && !strings.EqualFold(host, "localhost") {
		return errName
	}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); r.Method == http.MethodPost && kind != "application/json" {
		return errForm
	}
	return nil
}
