package screen

import (
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Table lines up text in columns.
type Table struct {
	Head  []string
	Paint Paint
	Width int // of the terminal; rows are cut to it in the last column; 0 cuts nothing

	rows [][]cell
}

type cell struct {
	text  string
	paint func(string) string
}

// Row adds a row. Control characters become blanks: what a worker calls itself cannot move the cursor.
func (t *Table) Row(texts ...string) {
	row := make([]cell, len(texts))
	for i, text := range texts {
		row[i] = cell{text: Clean(text)}
	}
	t.rows = append(t.rows, row)
}

// Mark colours a cell of the row that was added last.
func (t *Table) Mark(column int, paint func(string) string) {
	if last := len(t.rows) - 1; last >= 0 && column < len(t.rows[last]) {
		t.rows[last][column].paint = paint
	}
}

// Clean replaces control characters and the marks that turn the direction of text by blanks.
func Clean(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == utf8.RuneError {
			return ' '
		}
		return r
	}, text)
}

const gap = 2 // blanks between columns

// WriteTo writes the table. Without rows it writes nothing.
func (t *Table) WriteTo(w io.Writer) (int64, error) {
	if len(t.rows) == 0 {
		return 0, nil
	}
	head := make([]cell, len(t.Head))
	for i, text := range t.Head {
		head[i] = cell{strings.ToUpper(text), t.Paint.Strong}
	}
	all := t.rows
	if len(head) > 0 {
		all = append([][]cell{head}, t.rows...)
	}
	var widths []int
	for _, row := range all {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	var b strings.Builder
	for _, row := range all {
		t.line(&b, row, widths)
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

func (t *Table) line(b *strings.Builder, row []cell, widths []int) {
	at, pending := 0, 0
	for i, c := range row {
		text := c.text
		if i == len(row)-1 && t.Width > 0 {
			text = cut(text, t.Width-at)
		}
		if text != "" {
			b.WriteString(strings.Repeat(" ", pending))
			pending = 0
		}
		if c.paint != nil {
			b.WriteString(c.paint(text))
		} else {
			b.WriteString(text)
		}
		pending += widths[i] - utf8.RuneCountInString(text) + gap
		at += widths[i] + gap
	}
	b.WriteByte('\n')
}

// cut shortens text to width columns, with a dot line at its end.
func cut(text string, width int) string {
	if width < 4 || utf8.RuneCountInString(text) <= width {
		return text
	}
	runes := []rune(text)
	return strings.TrimRight(string(runes[:width-3]), " ") + "..."
}
