package session

import (
	"testing"

	"pgregory.net/rapid"
)

func TestFlightIsAMapByPacketIdentifier(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var f flight
		model := map[uint16]uint64{}
		// Few homes and many collisions.
		ids := rapid.Map(rapid.IntRange(0, 40), func(i int) uint16 { return uint16(1 + i%8 + i/8*64) })
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				if _, in := model[id]; in {
					return
				}
				seq := rapid.Uint64().Draw(t, "seq")
				if it := f.put(item{id: id, seq: seq}); it.id != id || it.seq != seq {
					t.Fatal("put gives another")
				}
				model[id] = seq
			},
			"remove": func(t *rapid.T) {
				id := ids.Draw(t, "id")
				if _, in := model[id]; in {
					f.remove(id)
					delete(model, id)
				}
			},
			"": func(t *rapid.T) {
				for i := range 41 {
					id := uint16(1 + i%8 + i/8*64)
					it, seq := f.find(id), model[id]
					if _, in := model[id]; in != (it != nil) || in && it.seq != seq {
						t.Fatalf("identifier %d: %v", id, it)
					}
				}
				n := 0
				f.each(func(*item) { n++ })
				if n != len(model) || f.n != n || len(f.sorted()) != n {
					t.Fatalf("%d, %d and %d of %d", n, f.n, len(f.sorted()), len(model))
				}
			},
		})
	})
}
