package certs

import "crypto/x509"

// ReadCA reads a CA bundle: a PEM file of at least one certificate, all of them
// well-formed. Blocks of other types are passed over.
func ReadCA(file string) ([]*x509.Certificate, error) { return certificates("CA", file) }

// LoadPool is [ReadCA] as the pool that [ServerOptions] and [ClientOptions]
// take.
func LoadPool(file string) (*x509.CertPool, error) {
	bundle, err := ReadCA(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	for _, c := range bundle {
		pool.AddCert(c)
	}
	return pool, nil
}
