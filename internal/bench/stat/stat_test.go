package stat

import (
	"math"
	"slices"
	"testing"
)

func TestMedianIsTheMiddleOrTheMeanOfTheTwoMiddleOnes(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{
		{nil, 0},
		{[]float64{7}, 7},
		{[]float64{9, 1}, 5},
		{[]float64{3, 1, 2}, 2},
		{[]float64{4, 1, 3, 2}, 2.5},
		{[]float64{-5, 100, 0}, 0},
		{[]float64{1, 1, 1, 1000}, 1},
		{[]float64{math.MaxFloat64, math.MaxFloat64}, math.MaxFloat64},
	} {
		if got := Median(c.in); got != c.want {
			t.Errorf("Median(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

func TestMedianLeavesItsInputInOrder(t *testing.T) {
	in := []float64{3, 1, 2}
	Median(in)
	Spread(in)
	if want := []float64{3, 1, 2}; !slices.Equal(in, want) {
		t.Fatalf("the input became %v, want %v", in, want)
	}
}

func TestSpreadIsTheRangeOverTheMedian(t *testing.T) {
	for _, c := range []struct {
		in   []float64
		want float64
	}{
		{nil, 0},
		{[]float64{5}, 0},
		{[]float64{5, 5, 5}, 0},
		{[]float64{8, 10, 12}, 0.4},
		{[]float64{-8, -10, -12}, 0.4},
		{[]float64{-1, 0, 1}, 0},
		{[]float64{100, 110}, 10.0 / 105},
	} {
		if got := Spread(c.in); got != c.want {
			t.Errorf("Spread(%v) = %v, want %v", c.in, got, c.want)
		}
	}
}

func TestSlopeIsTheLeastSquaresGradient(t *testing.T) {
	for _, c := range []struct {
		name             string
		x, y             []float64
		slope, intercept float64
	}{
		{"nothing", nil, nil, 0, 0},
		{"one point", []float64{3}, []float64{9}, 0, 9},
		{"one x only", []float64{3, 3}, []float64{8, 10}, 0, 9},
		{"a line", []float64{0, 100, 1000}, []float64{14, 114, 1014}, 1, 14},
		{"falling", []float64{0, 1, 2}, []float64{4, 2, 0}, -2, 4},
		{"scatter", []float64{0, 1, 2, 3}, []float64{1, 3, 2, 4}, 0.8, 1.3},
		{"unequal", []float64{0, 1, 2}, []float64{5, 7}, 2, 5},
	} {
		slope, intercept := Slope(c.x, c.y)
		if math.Abs(slope-c.slope) > 1e-12 || math.Abs(intercept-c.intercept) > 1e-12 {
			t.Errorf("%s: got %v + %v x, want %v + %v x", c.name, intercept, slope, c.intercept, c.slope)
		}
	}
}

func TestRatioPairsRoundsAndLeavesOutEmptyOnes(t *testing.T) {
	got := Ratio([]float64{2, 9, 4, 1}, []float64{4, 0, 2})
	if want := []float64{0.5, 2}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}
