package auth

import (
	"iter"
	"maps"
	"sync/atomic"
)

// table is a map that is read without a lock. A change replaces one of its parts, so that readers see the
// part as it was before or after, and a writer copies a 256th of the whole. Writers take turns: their
// caller holds a lock.
type table[K comparable, V any] struct {
	part   [256]atomic.Pointer[map[K]*V]
	spread func(K) uint8
}

func newTable[K comparable, V any](spread func(K) uint8) *table[K, V] {
	return &table[K, V]{spread: spread}
}

// get returns nil for what is not there.
func (t *table[K, V]) get(key K) *V {
	if m := t.part[t.spread(key)].Load(); m != nil {
		return (*m)[key]
	}
	return nil
}

// put changes one entry; a nil value removes it.
func (t *table[K, V]) put(key K, v *V) {
	at := &t.part[t.spread(key)]
	fresh := map[K]*V{}
	if m := at.Load(); m != nil {
		maps.Copy(fresh, *m)
	}
	if v == nil {
		delete(fresh, key)
	} else {
		fresh[key] = v
	}
	at.Store(&fresh)
}

// fill adds many entries to a table that nobody reads yet, without copying.
func (t *table[K, V]) fill(all iter.Seq2[K, *V]) {
	for key, v := range all {
		at := &t.part[t.spread(key)]
		if at.Load() == nil {
			at.Store(&map[K]*V{})
		}
		(*at.Load())[key] = v
	}
}

// byText spreads texts (FNV-1a, folded).
func byText(s string) uint8 {
	h := uint32(2166136261)
	for i := range len(s) {
		h = (h ^ uint32(s[i])) * 16777619
	}
	return uint8(h ^ h>>8 ^ h>>16 ^ h>>24)
}

// bySum spreads hashes, which are spread already.
func bySum(d digest) uint8 { return d[0] }
