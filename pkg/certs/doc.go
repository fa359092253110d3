// Package certs loads and checks what TLS needs: certificates with their keys,
// CA bundles, and the [tls.Config] of a listener and of a pool.
//
// What an operator can get wrong in a file is named with the file, the reason
// and the way to mend it. What still works but soon may not, such as an
// expired certificate, is a warning of [CheckServer] and its kin, not an error: an expired
// certificate must not keep a fleet's other listeners from starting.
package certs
