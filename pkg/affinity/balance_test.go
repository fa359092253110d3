package affinity

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/mqttlb/mqttlb/pkg/backend"
)

// schemes are ways in which people name backends. How even the ring is depends
// on the names, so one of them proves little.
var schemes = []string{
	"b%d",
	"broker-%d",
	"mqtt-%d.example.com:1883",
	"10.0.0.%d:1883",
	"emqx@emqx-%d.emqx-headless.mqtt.svc.cluster.local",
	"%d",
}

// The promise to operators: heaviest/mean at most 1.10. At 50 backends and
// 100,000 ids chance alone, with a perfect hash, costs about 1.05.
func TestEqualBackendsGetEqualShares(t *testing.T) {
	keys := map[string][][]byte{}
	for _, form := range forms {
		keys[form.name] = form.ids(100_000)
	}
	for _, size := range []int{3, 10, 50} {
		t.Run(fmt.Sprintf("%d backends", size), func(t *testing.T) {
			for _, scheme := range schemes {
				table := build(t, pool(size, scheme), Options{})
				for _, form := range forms {
					heaviest, lightest := spread(t, table, keys[form.name])
					t.Logf("%s on %q: heaviest/mean %.3f, lightest/mean %.3f", form.name, scheme, heaviest, lightest)
					if heaviest > 1.10 {
						t.Errorf("%s on %q: heaviest/mean %.3f is over 1.10", form.name, scheme, heaviest)
					}
				}
			}
		})
	}
}

// C015: zalando/skipper#1796 and others. One ring point per server, or FNV over
// names that differ in their last byte, put nearly all devices on one backend.
func TestSimilarIDsDoNotPileUp(t *testing.T) {
	t.Run("20,000 of each form on 10 backends", func(t *testing.T) {
		keys := map[string][][]byte{
			"sensor-": ids(20_000, func(i int) []byte { return fmt.Appendf(nil, "sensor-%06d", i) }),
			"MAC":     ids(20_000, func(i int) []byte { return fmt.Appendf(nil, "AA:BB:CC:00:%02X:%02X", i>>8, i&0xff) }),
			"UUID":    forms[2].ids(20_000),
		}
		for _, scheme := range schemes {
			table := build(t, pool(10, scheme), Options{})
			for form, keys := range keys {
				heaviest, lightest := spread(t, table, keys)
				if heaviest > 1.25 || lightest < 0.75 {
					t.Errorf("%s on %q: heaviest/mean %.3f, lightest/mean %.3f", form, scheme, heaviest, lightest)
				}
			}
		}
	})
	t.Run("dev-00 to dev-99 on 3 backends", func(t *testing.T) {
		for _, scheme := range schemes {
			_, lightest := spread(t, build(t, pool(3, scheme), Options{}),
				ids(100, func(i int) []byte { return fmt.Appendf(nil, "dev-%02d", i) }))
			if n := lightest * 100 / 3; n < 15 {
				t.Errorf("%q: one backend got %.0f of 100 ids", scheme, n)
			}
		}
	})
}

func TestSharesGoByWeight(t *testing.T) {
	weights := map[string]int{"a": 50, "b": 100, "c": 200, "d": 400}
	var all []*backend.Backend
	for name, w := range weights {
		all = append(all, up(backend.Spec{Name: name, Weight: w}))
	}
	table := build(t, all, Options{})
	count := map[string]int{}
	keys := forms[0].ids(100_000)
	for _, key := range keys {
		count[home(t, table, key).Name]++
	}
	sum := 0.0
	for _, s := range table.Shares() {
		sum += s.Share
		if off := s.Share/s.Fair - 1; math.Abs(off) > 0.05 {
			t.Errorf("%s: share %.4f, its weight asks for %.4f", s.Name, s.Share, s.Fair)
		}
		if got := float64(count[s.Name]) / float64(len(keys)); math.Abs(got/s.Share-1) > 0.05 {
			t.Errorf("%s: got %.4f of the ids, has %.4f of the ring", s.Name, got, s.Share)
		}
	}
	if math.Abs(sum-1) > 1e-9 {
		t.Errorf("shares sum to %v", sum)
	}
}

func TestSharesWithoutARingAreThoseOfTheWeights(t *testing.T) {
	table := build(t, []*backend.Backend{
		up(backend.Spec{Name: "b", Weight: 300}), up(backend.Spec{Name: "a", Weight: 100}),
	}, Options{Balance: Random})
	got := table.Shares()
	if got[0].Name != "a" || got[0].Share != 0.25 || got[1].Share != 0.75 || got[1].Fair != 0.75 {
		t.Fatalf("shares %+v", got)
	}
}

func TestOnlyTheKeysOfARemovedBackendMove(t *testing.T) {
	keys := forms[1].ids(6000)
	for _, size := range []int{3, 10} {
		all := pool(size, "broker-%d")
		before := build(t, all, Options{})
		after := build(t, without(all, "broker-2"), Options{})
		heirs := map[string]int{}
		lost := 0
		for _, key := range keys {
			was := order(before, key)
			is := order(after, key)
			// Not only the home: the whole order stays, without the one that is gone.
			if want := slices.DeleteFunc(slices.Clone(was), func(n string) bool { return n == "broker-2" }); !slices.Equal(is, want) {
				t.Fatalf("%d backends, %q: order was %v, is %v", size, key, was, is)
			}
			if was[0] == "broker-2" {
				lost++
				heirs[is[0]]++
			}
		}
		// Its clients fall on all others alike, so that no spare drowns.
		mean := float64(lost) / float64(size-1)
		for name, n := range heirs {
			if noise := 5 / math.Sqrt(mean); math.Abs(float64(n)/mean-1) > 0.10+noise {
				t.Errorf("%d backends: %s inherits %d, mean %.0f", size, name, n, mean)
			}
		}
	}
}

func TestABackendThatGainsWeightTakesKeysAndMovesNoOthers(t *testing.T) {
	all := pool(5, "b%d")
	before := build(t, all, Options{})
	heavier := slices.Clone(all)
	heavier[2] = all[2].With(backend.Spec{Name: "b3", Weight: 150})
	after := build(t, heavier, Options{})
	moved := 0
	for _, key := range forms[0].ids(20_000) {
		was, is := home(t, before, key).Name, home(t, after, key).Name
		if was == is {
			continue
		}
		if moved++; is != "b3" {
			t.Fatalf("%q moved from %s to %s", key, was, is)
		}
	}
	if moved == 0 {
		t.Fatal("half as much weight again moved nothing")
	}
}
