package ws

import "bytes"

// Answer judges what a server sent to a client whose key was given: the key of ClientHandshake is
// random, and a fuzz target must not be.
func Answer(b []byte, key string) (rest []byte, err error) {
	r := bytes.NewReader(b)
	head, end, err := readHead(r)
	if err != nil {
		return nil, err
	}
	if err := checkAnswer(r, head, end, key); err != nil {
		return nil, err
	}
	return head[end:], nil
}
