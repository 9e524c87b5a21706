package ws

import (
	"crypto/sha1"
	"encoding/base64"
	"strconv"
)

// guid is appended to the key before it is hashed (RFC 6455 section 1.3).
const guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// AppendAccept appends the answer 101 to a request with that key. All bytes behind it are frames.
func AppendAccept(dst []byte, key string) []byte {
	dst = append(dst, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"+
		"Sec-WebSocket-Accept: "...)
	dst = appendProof(dst, key)
	return append(dst, "\r\n\r\n"...)
}

// appendProof appends what shows that a key was understood.
func appendProof(dst []byte, key string) []byte {
	var buf [keySize + len(guid)]byte
	sum := sha1.Sum(append(append(buf[:0], key...), guid...))
	return base64.StdEncoding.AppendEncode(dst, sum[:])
}

// AppendRefusal appends a plain HTTP answer with the reason as its text, after which the connection
// is to be closed.
func AppendRefusal(dst []byte, status int, reason string) []byte {
	dst = append(dst, "HTTP/1.1 "...)
	dst = strconv.AppendInt(dst, int64(status), 10)
	dst = append(append(dst, ' '), phrase(status)...)
	dst = append(dst, "\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"+
		"X-Content-Type-Options: nosniff\r\n"...)
	switch status {
	case 405:
		dst = append(dst, "Allow: GET\r\n"...)
	case 426:
		dst = append(dst, "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"...)
	}
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(reason)+1), 10)
	dst = append(append(dst, "\r\n\r\n"...), reason...)
	return append(dst, '\n')
}

func phrase(status int) string {
	switch status {
	case 200:
		return "OK"
	case 400:
		return "Bad Request"
	case 401:
		return "Unauthorized"
	case 403:
		return "Forbidden"
	case 404:
		return "Not Found"
	case 405:
		return "Method Not Allowed"
	case 408:
		return "Request Timeout"
	case 421:
		return "Misdirected Request"
	case 426:
		return "Upgrade Required"
	case 429:
		return "Too Many Requests"
	case 431:
		return "Request Header Fields Too Large"
	case 500:
		return "Internal Server Error"
	case 503:
		return "Service Unavailable"
	case 505:
		return "HTTP Version Not Supported"
	}
	return "Refused"
}
