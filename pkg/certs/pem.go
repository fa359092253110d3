package certs

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// block is one PEM block and the line of the file that it begins on.
type block struct {
	*pem.Block
	line int
}

// fileError gives every problem of a file the same shape: role is what the file
// is for, such as "certificate".
func fileError(role, file, format string, args ...any) error {
	return fmt.Errorf("%s file %q: %w", role, file, fmt.Errorf(format, args...))
}

// readPEM reads a file of at least one PEM block.
func readPEM(role, file string) ([]block, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		// The path is in our own text already.
		if e, ok := errors.AsType[*fs.PathError](err); ok {
			err = e.Err
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil, fileError(role, file, "%w; write the path of a PEM file (a relative one starts at the working directory)", err)
		case errors.Is(err, fs.ErrPermission):
			return nil, fileError(role, file, "%w; let the user that mqttlb runs as read it", err)
		default:
			return nil, fileError(role, file, "%w", err)
		}
	}
	blocks, err := splitPEM(data)
	if err != nil {
		return nil, fileError(role, file, "%w", err)
	}
	return blocks, nil
}

// splitPEM is pem.Decode for files that may be damaged: Decode passes over what
// it cannot read, and the half of a file that was being written would go
// unnoticed.
func splitPEM(data []byte) ([]block, error) {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // byte order mark of Windows editors
	var blocks []block
	line := 1
	for text := data; len(text) > 0; {
		// A piece is one block with what follows it, up to the next BEGIN.
		end := len(text)
		if i := bytes.Index(text[1:], []byte("\n-----BEGIN ")); i >= 0 {
			end = 1 + i + 1
		}
		piece := text[:end]
		b, rest := pem.Decode(piece)
		if i := strayMarker(rest); i >= 0 {
			at := len(piece) - len(rest) + i
			return nil, fmt.Errorf("line %d: the PEM block here is damaged or cut short; write the whole file again", line+bytes.Count(piece[:at], []byte("\n")))
		}
		if b != nil {
			blocks = append(blocks, block{b, line})
		}
		line += bytes.Count(piece, []byte("\n"))
		text = text[end:]
	}
	if len(blocks) == 0 {
		return nil, notPEM(data)
	}
	return blocks, nil
}

// strayMarker finds a BEGIN or END line in text that belongs to no block, or the
// start of a BEGIN line that the end of the file has cut; -1 is none.
func strayMarker(text []byte) int {
	at := 0
	for l := range bytes.Lines(text) {
		if bytes.HasPrefix(l, []byte("-----BEGIN ")) || bytes.HasPrefix(l, []byte("-----END ")) ||
			bytes.HasPrefix([]byte("-----BEGIN "), l) {
			return at
		}
		at += len(l)
	}
	return -1
}

// notPEM says what a file without a PEM block seems to be instead.
func notPEM(data []byte) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("is empty; write a PEM file")
	}
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return errors.New("is UTF-16 text, as PowerShell writes it; save it as ASCII or UTF-8")
	}
	if _, err := x509.ParseCertificate(data); err == nil {
		return errors.New("is a DER certificate; make it PEM: openssl x509 -inform der -in FILE -out FILE.pem")
	}
	for _, typ := range []string{"PRIVATE KEY", "RSA PRIVATE KEY", "EC PRIVATE KEY"} {
		if _, err := parseKey(&pem.Block{Type: typ, Bytes: data}); err == nil {
			return errors.New("is a DER private key; make it PEM: openssl pkey -inform der -in FILE -out FILE.pem")
		}
	}
	if data[0] == 0x30 { // an ASN.1 sequence
		return errors.New("is binary, perhaps PKCS#12 (.p12, .pfx); make it PEM: openssl pkcs12 -in FILE -nodes -out FILE.pem")
	}
	return errors.New(`holds no PEM block; it should begin with "-----BEGIN "`)
}

// certificates parses the CERTIFICATE blocks of a file and passes over others.
func certificates(role, file string) ([]*x509.Certificate, error) {
	blocks, err := readPEM(role, file)
	if err != nil {
		return nil, err
	}
	var parsed []*x509.Certificate
	var problems []error
	for _, b := range blocks {
		if b.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(b.Bytes)
		if err != nil {
			problems = append(problems, fileError(role, file, "line %d: the certificate that begins here: %w; replace it or take it out", b.line, err))
			continue
		}
		parsed = append(parsed, c)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	if len(parsed) == 0 {
		return nil, fileError(role, file, "holds %s and no certificate; %s", types(blocks), certificateHint(blocks))
	}
	return parsed, nil
}

func certificateHint(blocks []block) string {
	for _, b := range blocks {
		switch {
		case isKey(b):
			return "have the certificate and the key file been swapped?"
		case b.Type == "PKCS7":
			return "take the certificates out: openssl pkcs7 -print_certs -in FILE -out FILE.pem"
		case b.Type == "TRUSTED CERTIFICATE":
			return "write it plainly: openssl x509 -in FILE -out FILE.pem"
		}
	}
	return `it needs a block "-----BEGIN CERTIFICATE-----"`
}

func isKey(b block) bool { return strings.HasSuffix(b.Type, "PRIVATE KEY") }

// types lists the kinds of blocks of a file for people.
func types(blocks []block) string {
	var names []string
	for _, b := range blocks[:min(len(blocks), 4)] {
		names = append(names, fmt.Sprintf("%q", b.Type))
	}
	return strings.Join(names, ", ")
}
