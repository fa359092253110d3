package main

import (
	"reflect"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/admin/brokeradmin"
	"github.com/mqttlb/mqttlb/pkg/broker/cluster"
	"github.com/mqttlb/mqttlb/pkg/config"
)

func TestWhatTheStoreSeesIsShown(t *testing.T) {
	got := seen(&config.Cluster{Name: "plant", Size: 5}, cluster.Status{
		View:   cluster.View{Size: 5, Quorum: true, Nodes: []cluster.Node{{Name: "b2", Start: 7, Heard: true}, {Name: "b3", Start: 8}}},
		Leader: "b2",
		Streams: []cluster.StreamStatus{
			{Name: "MQ_MSG_0", Leader: "b2", Replicas: []cluster.ReplicaStatus{{Node: "b3", Current: true}, {Node: "b1", Offline: true, Lag: 4}}},
			{Name: "KV_MQ_SESS", Leader: "b2", Replicas: []cluster.ReplicaStatus{{Node: "b3", Offline: true}, {Node: "b1", Offline: true}}},
			{Name: "NEW"},
		},
	})
	want := brokeradmin.Seen{
		Cluster: "plant", Size: 5, Copies: 3, Quorum: true, Leader: "b2",
		Nodes: []brokeradmin.Node{{Name: "b1"}, {Name: "b2", Heard: true, Start: 7, Leads: 2}, {Name: "b3", Start: 8}}, // b1 is lost for long
		Streams: []brokeradmin.Stream{
			{Name: "log 0", Leader: "b2", Quorum: true, Replicas: []brokeradmin.Replica{{Node: "b3", Current: true}, {Node: "b1", Offline: true, Lag: 4}}},
			{Name: "sessions", Leader: "b2", Replicas: []brokeradmin.Replica{{Node: "b3", Offline: true}, {Node: "b1", Offline: true}}},
			{Name: "NEW", Replicas: []brokeradmin.Replica{}},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}
