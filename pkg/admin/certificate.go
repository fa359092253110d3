package admin

import "time"

// Certificate is a certificate that a listener presents.
type Certificate struct {
	Listener, Subject string
	NotAfter          time.Time
}

// Left is the time until it expires, in seconds; below zero behind that.
func (c Certificate) Left() float64 { return time.Until(c.NotAfter).Seconds() }
