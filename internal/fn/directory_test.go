package fn

import (
	"fmt"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// TestTheDirectoryIsAMap drives it beside a Go map.
func TestTheDirectoryIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d, model := &directory{}, map[[2]string]*Function{}
		space := rapid.SampledFrom([]string{"default", "a", "b"})
		name := rapid.Map(rapid.IntRange(0, 400), func(i int) string { return fmt.Sprint("x::", i) })
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				f := &Function{Spec: Spec{Namespace: space.Draw(t, "space"), Name: name.Draw(t, "name")}}
				d.put(f)
				model[[2]string{f.Namespace, f.Name}] = f
			},
			"drop": func(t *rapid.T) {
				k := [2]string{space.Draw(t, "space"), name.Draw(t, "name")}
				f := model[k]
				if f == nil {
					f = &Function{Spec: Spec{Namespace: k[0], Name: k[1]}}
				}
				if got := d.drop(f); got != (model[k] != nil) {
					t.Fatalf("drop %v: %v", k, got)
				}
				delete(model, k)
			},
			"": func(t *rapid.T) {
				k := [2]string{space.Draw(t, "space"), name.Draw(t, "name")}
				if got := find(d, k[0], k[1]); got != model[k] {
					t.Fatalf("find %v: %v, want %v", k, got, model[k])
				}
				if d.size() != len(model) {
					t.Fatalf("%d functions, want %d", d.size(), len(model))
				}
			},
		})
	})
}

// TestReadersSeeWhatStaysWhileOthersComeAndGo looks functions up while the chains around them change.
func TestReadersSeeWhatStaysWhileOthersComeAndGo(t *testing.T) {
	d := &directory{}
	stay := make([]*Function, 100)
	for i := range stay {
		stay[i] = &Function{Spec: Spec{Namespace: Default, Name: fmt.Sprint("stay::", i)}}
		d.put(stay[i])
	}
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Go(func() {
			for i := 0; ; i++ {
				f := stay[i%len(stay)]
				if got := find(d, []byte(Default), []byte(f.Name)); got != f {
					t.Errorf("%s: got %v", f.Name, got)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for range 20 {
		var come []*Function
		for i := range 1000 {
			f := &Function{Spec: Spec{Namespace: Default, Name: fmt.Sprint("come::", i)}}
			d.put(f)
			come = append(come, f)
		}
		for _, f := range come {
			if !d.drop(f) {
				t.Errorf("%s was not there", f.Name)
			}
		}
	}
	close(done)
	readers.Wait()
}
