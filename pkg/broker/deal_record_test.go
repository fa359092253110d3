package broker

import (
	"reflect"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

var aDealRecord = dealRecord{
	Node: "a", Epoch: 300,
	Groups: []dealGroup{
		{Share: "$share/g/x", Places: []uint64{7, 1 << 40}, Holes: []session.Ref{{Shard: 0, Seq: 3}, {Shard: 0, Seq: 6}, {Shard: 1, Seq: 9}}},
		{Share: "$share/h/+", Places: []uint64{5, 5}, Ended: []session.Ref{{Shard: 0, Seq: 8}, {Shard: 1, Seq: 6}, {Shard: 1, Seq: 70}}},
	},
	Heard: map[string]heard{"a": {Sync: 1, Number: 2}, "b": {Sync: 3, Number: 4}},
}

func TestTheDealersRecordIsReadAsItWasWritten(t *testing.T) {
	b := aDealRecord.append(nil)
	if r, err := parseDealRecord(b); err != nil || !reflect.DeepEqual(r, aDealRecord) || !r.equal(&aDealRecord) {
		t.Errorf("got %+v, %v", r, err)
	}
	for n := range b {
		if _, err := parseDealRecord(b[:n]); err == nil {
			t.Errorf("cut to %d bytes: no error", n)
		}
	}
}

func TestTheDealersRecordHoldsTheLog(t *testing.T) {
	first := []uint64{100, 100}
	if err := sharesNeed(cluster.Record{Key: SharesKey, Value: aDealRecord.append(nil)}, first); err != nil || first[0] != 3 || first[1] != 6 {
		t.Errorf("from %v on, %v", first, err)
	}
}
