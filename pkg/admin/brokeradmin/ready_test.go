package brokeradmin

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/admin"
)

func TestReadyzSaysWhetherToSendClients(t *testing.T) {
	for _, row := range []struct {
		name    string
		reasons []string // the broker's
		drain   bool
		status  int
		body    string
	}{
		{"ready", nil, false, http.StatusOK, `{"ready":true,"node":"b1"}`},
		{"loading", []string{"state is being loaded"}, false, http.StatusServiceUnavailable, `{"ready":false,"reasons":["state is being loaded"],"node":"b1"}`},
		{"shutting down", nil, true, http.StatusServiceUnavailable, `{"ready":false,"reasons":["shutting down"],"node":"b1"}`},
	} {
		t.Run(row.name, func(t *testing.T) {
			r := NewReadiness("b1", func() (bool, []string) { return len(row.reasons) == 0, row.reasons })
			if row.drain {
				r.Drain()
				r.Drain() // once more is no harm
				<-r.Draining()
			}
			rec := httptest.NewRecorder()
			admin.Health(r).ServeHTTP(rec, httptest.NewRequest("GET", "/readyz", nil))
			if rec.Code != row.status || rec.Body.String() != row.body+"\n" {
				t.Errorf("%d %s, want %d %s", rec.Code, rec.Body, row.status, row.body)
			}
			if r.Ready() != (row.status == http.StatusOK) {
				t.Errorf("the short answer is %t", r.Ready())
			}
		})
	}
}
