package broker

import (
	"testing"

	"github.com/mqttlb/mqttlb/pkg/broker/session"
)

// A dealer that has taken over reads its groups again from their places, while
// their members end, hold and give back what they had from the one before.
func TestWhatIsReadAgainIsNotDealtAgain(t *testing.T) {
	const share = "$share/g/t"
	ref := session.Ref{Seq: 7}
	x := dealt{Share: share, Client: "c", Seq: ref.Seq, QoS: 2}
	read := func(d *dealer, g *group) { d.put(g, &session.Message{QoS: 2}, ref) }
	for _, row := range []struct {
		name  string
		tell  func(d *dealer, g *group)
		waits int
	}{
		{"nothing is known of it", func(d *dealer, g *group) { read(d, g) }, 1},
		{"it is held", func(d *dealer, g *group) { d.held("n", x); read(d, g) }, 0},
		{"it has ended", func(d *dealer, g *group) { d.ended(x); read(d, g) }, 0},
		{"it was held and has ended", func(d *dealer, g *group) { d.held("n", x); d.ended(x); read(d, g) }, 0},
		{"it has ended where the session is, and is held where that was", func(d *dealer, g *group) { d.ended(x); d.held("n", x); read(d, g) }, 0},
		{"it was given back", func(d *dealer, g *group) { d.held("n", x); d.again(g.dealt[ref]); read(d, g) }, 1},
		{"it was given back and has ended", func(d *dealer, g *group) { d.held("n", x); d.again(g.dealt[ref]); d.ended(x); read(d, g) }, 0},
		{"it is read twice", func(d *dealer, g *group) { read(d, g); read(d, g) }, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			b := &Broker{shards: make([]shard, 1)}
			d := &b.dealer
			d.init(b)
			b.open(dealGroup{Share: share, Places: []uint64{3}})
			g := d.groups[share]
			row.tell(d, g)
			if g.waits != row.waits || len(g.pending[0]) != row.waits {
				t.Errorf("%d wait, in a line of %d", g.waits, len(g.pending[0]))
			}
		})
	}
}

// What has ended behind the place is in the record as long as it is to be read:
// sessions forget that they have had it once the record has heard of it.
func TestTheRecordKnowsWhatHasEndedBehindThePlace(t *testing.T) {
	const share = "$share/g/t"
	b := &Broker{shards: make([]shard, 1)}
	d := &b.dealer
	d.init(b)
	b.open(dealGroup{Share: share, Places: []uint64{3}})
	d.ended(dealt{Share: share, Client: "c", Seq: 7, QoS: 2})
	r := d.groups[share].record([]uint64{9})
	if len(r.Ended) != 1 || r.Ended[0].Seq != 7 || r.Places[0] != 3 {
		t.Fatalf("record %+v", r)
	}
	b.close(d.groups[share])
	b.open(r)
	g := d.groups[share]
	d.put(g, &session.Message{QoS: 2}, session.Ref{Seq: 7})
	if g.waits != 0 {
		t.Error("the next dealer deals it")
	}
	g.reading[0] = reading{at: 9}
	if r := g.record([]uint64{9}); len(r.Ended) != 0 || len(r.Holes) != 0 {
		t.Errorf("record %+v once it was read", r)
	}
}

// A node reports while the dealer that has had its state still asks others for
// theirs. Were it told that nobody listens, it would say nothing more, and the
// dealer deal to members that it believes to be gone.
func TestAReportWaitsForTheDealerToBegin(t *testing.T) {
	b := &Broker{shards: make([]shard, 1)}
	d := &b.dealer
	d.init(b)
	early := &report{Sync: b.nextSync(), Number: 1}
	if how := b.hear("n", early); how != unknownReport {
		t.Errorf("one that does not deal says %q", how)
	}
	d.former = d.syncs
	asked := &report{Sync: b.nextSync(), Number: 1, Members: map[string][]player{"$share/g/t": {{ID: "c", Online: true}}}}
	if how := b.hear("n", asked); how != laterReport {
		t.Errorf("one that is about to deal says %q", how)
	}
	if how := b.hear("n", early); how != unknownReport {
		t.Errorf("to what it has not asked for it says %q", how)
	}
	d.on, d.quorum = true, func() bool { return true }
	b.saveNow = make(chan struct{}, 1)
	d.hands["n"] = &hand{node: "n", ready: true, heard: heard{Sync: asked.Sync}}
	for range 2 { // the answer may be lost
		if how := b.hear("n", asked); how != takenReport {
			t.Errorf("one that deals says %q", how)
		}
	}
	if !d.anyone(d.groups["$share/g/t"]) {
		t.Error("the member is not known to be there")
	}
}
