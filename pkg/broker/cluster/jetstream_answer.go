package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// answer is the engine's to one frame, or to an atomic batch.
type answer struct {
	wave  uint64
	frame int
	seq   uint64
	err   error
}

// errRetry is an answer that asks for another try.
var errRetry = errors.New("the engine is not ready")

// errBusy is the engine's answer in a cluster to a condition on a subject as long
// as another write to it is under way: it can't tell yet whether that holds.
var errBusy = fmt.Errorf("%w: the subject is being written to", errRetry)

var errDiskFull = fmt.Errorf("%w: too little of the disk is free", ErrFull)

// parseAnswer reads an answer, which came to inbox.<wave>.<frame>.
func parseAnswer(inbox string, m *nats.Msg) (answer, error) {
	wave, frame, _ := strings.Cut(strings.TrimPrefix(m.Subject, inbox+"."), ".")
	w, err := strconv.ParseUint(wave, 10, 64)
	if err != nil {
		return answer{}, err
	}
	f, err := strconv.Atoi(frame)
	if err != nil {
		return answer{}, err
	}
	a := answer{wave: w, frame: f}
	if m.Header.Get("Status") == "503" { // nobody listens to the subject
		a.err = errRetry
		return a, nil
	}
	var ack struct {
		Seq   uint64           `json:"seq"`
		Error *server.ApiError `json:"error"`
	}
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return answer{}, err
	}
	a.seq = ack.Seq
	if ack.Error != nil {
		a.err = engineError(ack.Error)
	}
	return a, nil
}

// engineError sorts the engine's errors.
func engineError(e *server.ApiError) error {
	switch server.ErrorIdentifier(e.ErrCode) {
	case server.JSStreamWrongLastSequenceErrF:
		return ErrConflict
	case server.JSStreamWrongLastSequenceConstantErr:
		return errBusy
	case server.JSStreamMessageExceedsMaximumErr, server.JSStreamHeaderExceedsMaximumErr:
		return ErrTooLarge
	case server.JSStreamTooManyRequests, server.JSClusterNotLeaderErr, server.JSClusterNotAvailErr:
		return errRetry
	case server.JSAccountResourcesExceededErr, server.JSInsufficientResourcesErr, server.JSStorageResourcesExceededErr:
		return fmt.Errorf("%w: %s", ErrFull, e.Description)
	case server.JSStreamStoreFailedF:
		switch e.Description {
		case server.ErrMaxBytes.Error(), server.ErrMaxMsgs.Error():
			return fmt.Errorf("%w: %s", ErrFull, e.Description)
		case server.ErrMsgTooLarge.Error():
			return ErrTooLarge
		}
	}
	return fmt.Errorf("%w: %s (%d)", ErrUnavailable, e.Description, e.ErrCode)
}
