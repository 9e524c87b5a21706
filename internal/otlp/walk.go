package otlp

// origin is what all records of one resource and scope share.
type origin struct {
	service, source string
	resource        []byte // JSON
	scope, version  string
}

// frame names the levels of a message: a list of resources, each with a list of scopes, each with a
// list of records.
type frame struct{ resources, scopes, records string }

// walk visits each record with the cursor standing at it. The order of the members is the sender's:
// where a list comes before the resource or scope that it belongs to, it is read after it.
func (c *cursor) walk(f frame, resource func(*origin), record func(*origin)) {
	c.object(func(key []byte) {
		if string(key) != f.resources {
			return
		}
		c.array(func() {
			var o origin
			c.below("resource", f.scopes, func() { resource(&o) }, func() {
				c.array(func() {
					o.scope, o.version = "", ""
					c.below("scope", f.records, func() { c.scope(&o) }, func() {
						c.array(func() { record(&o) })
					})
				})
			})
		})
	})
}

// below reads an object with a head and a list, head first.
func (c *cursor) below(head, list string, readHead, readList func()) {
	seen, later := false, -1
	c.object(func(key []byte) {
		switch string(key) {
		case head:
			seen = true
			readHead()
		case list:
			if seen {
				readList()
			} else {
				later = c.i
			}
		}
	})
	if later >= 0 {
		behind := c.i
		c.i = later
		readList()
		c.i = behind
	}
}

func (c *cursor) scope(o *origin) {
	c.object(func(key []byte) {
		switch string(key) {
		case "name":
			o.scope = c.text()
		case "version":
			o.version = c.text()
		}
	})
}

// resource reads who sent it. pairs tells the shape of the JSON that is kept.
func (c *cursor) resource(o *origin, pairs bool) {
	c.object(func(key []byte) {
		if string(key) != "attributes" {
			return
		}
		at := c.i
		c.array(func() { c.origin(o) })
		c.i = at
		if pairs {
			o.resource = c.pairs(nil)
		} else {
			o.resource = c.members(nil, 0)
		}
	})
}

func (c *cursor) origin(o *origin) {
	key, at := c.attribute()
	var to *string
	switch string(key) {
	case "service.name":
		to = &o.service
	case "service.instance.id":
		to = &o.source
	}
	if to == nil || at == 0 {
		return
	}
	behind := c.i
	c.i = at
	*to = c.plain()
	c.i = behind
}
