package listen

import "testing"

func TestSlotsHaveAReserveToTellOfTheBound(t *testing.T) {
	for _, row := range []struct {
		name                string
		limit               int
		taken               int
		welcome, told, away int
	}{
		{"no bound", 0, 1000, 1000, 0, 0},
		{"a small bound", 2, 20, 2, 16, 2},
		{"a large bound", 3200, 3500, 3200, 200, 100},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := Slots{Limit: row.limit}
			got := map[Entry]int{}
			for range row.taken {
				got[s.Take()]++
			}
			if got[Welcome] != row.welcome || got[TooMany] != row.told || got[FarTooMany] != row.away {
				t.Errorf("%d are welcome, %d told, %d sent away", got[Welcome], got[TooMany], got[FarTooMany])
			}
			if held := s.Held(); held != int64(row.welcome+row.told) {
				t.Errorf("%d held: those sent away do not count", held)
			}
			for range row.welcome + row.told {
				s.Give()
			}
			if s.Held() != 0 || s.Take() != Welcome {
				t.Error("not welcome after all have left")
			}
		})
	}
}
