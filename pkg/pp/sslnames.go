package pp

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"strconv"
)

// The specification's examples are OpenSSL's names, HAProxy sends those, and
// receivers compare against them: Go's names are turned into them here.

var versionNames = map[uint16]string{
	tls.VersionTLS10: "TLSv1",
	tls.VersionTLS11: "TLSv1.1",
	tls.VersionTLS12: "TLSv1.2",
	tls.VersionTLS13: "TLSv1.3",
}

func versionName(v uint16) string {
	if name, ok := versionNames[v]; ok {
		return name
	}
	return tls.VersionName(v)
}

// cipherNames holds the suites up to TLS 1.2. Those of TLS 1.3 have one name.
var cipherNames = map[uint16]string{
	tls.TLS_RSA_WITH_RC4_128_SHA:                      "RC4-SHA",
	tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA:                 "DES-CBC3-SHA",
	tls.TLS_RSA_WITH_AES_128_CBC_SHA:                  "AES128-SHA",
	tls.TLS_RSA_WITH_AES_256_CBC_SHA:                  "AES256-SHA",
	tls.TLS_RSA_WITH_AES_128_CBC_SHA256:               "AES128-SHA256",
	tls.TLS_RSA_WITH_AES_128_GCM_SHA256:               "AES128-GCM-SHA256",
	tls.TLS_RSA_WITH_AES_256_GCM_SHA384:               "AES256-GCM-SHA384",
	tls.TLS_ECDHE_ECDSA_WITH_RC4_128_SHA:              "ECDHE-ECDSA-RC4-SHA",
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA:          "ECDHE-ECDSA-AES128-SHA",
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA:          "ECDHE-ECDSA-AES256-SHA",
	tls.TLS_ECDHE_RSA_WITH_RC4_128_SHA:                "ECDHE-RSA-RC4-SHA",
	tls.TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA:           "ECDHE-RSA-DES-CBC3-SHA",
	tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA:            "ECDHE-RSA-AES128-SHA",
	tls.TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA:            "ECDHE-RSA-AES256-SHA",
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256:       "ECDHE-ECDSA-AES128-SHA256",
	tls.TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256:         "ECDHE-RSA-AES128-SHA256",
	tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256:         "ECDHE-RSA-AES128-GCM-SHA256",
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256:       "ECDHE-ECDSA-AES128-GCM-SHA256",
	tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384:         "ECDHE-RSA-AES256-GCM-SHA384",
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384:       "ECDHE-ECDSA-AES256-GCM-SHA384",
	tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256:   "ECDHE-RSA-CHACHA20-POLY1305",
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256: "ECDHE-ECDSA-CHACHA20-POLY1305",
}

func cipherName(id uint16) string {
	if name, ok := cipherNames[id]; ok {
		return name
	}
	return tls.CipherSuiteName(id)
}

var sigAlgNames = map[x509.SignatureAlgorithm]string{
	x509.MD5WithRSA:       "RSA-MD5",
	x509.SHA1WithRSA:      "RSA-SHA1",
	x509.SHA256WithRSA:    "RSA-SHA256",
	x509.SHA384WithRSA:    "RSA-SHA384",
	x509.SHA512WithRSA:    "RSA-SHA512",
	x509.SHA256WithRSAPSS: "RSASSA-PSS",
	x509.SHA384WithRSAPSS: "RSASSA-PSS",
	x509.SHA512WithRSAPSS: "RSASSA-PSS",
	x509.ECDSAWithSHA1:    "ecdsa-with-SHA1",
	x509.ECDSAWithSHA256:  "ecdsa-with-SHA256",
	x509.ECDSAWithSHA384:  "ecdsa-with-SHA384",
	x509.ECDSAWithSHA512:  "ecdsa-with-SHA512",
	x509.PureEd25519:      "ED25519",
}

// sigAlgName is empty for an algorithm without a known name.
func sigAlgName(a x509.SignatureAlgorithm) string { return sigAlgNames[a] }

// keyAlgName is empty for a kind of key that crypto/tls has no certificates of.
func keyAlgName(key any) string {
	switch k := key.(type) {
	case *rsa.PublicKey:
		return "RSA" + strconv.Itoa(k.N.BitLen())
	case *ecdsa.PublicKey:
		return "EC" + strconv.Itoa(k.Curve.Params().BitSize)
	case ed25519.PublicKey:
		return "ED25519"
	default:
		return ""
	}
}
