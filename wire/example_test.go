package wire_test

import (
	"errors"
	"fmt"

	"github.com/plinth-run/plinth/wire"
)

func ExampleFrame_Scan() {
	var f wire.Frame // used again for every message
	err := f.Scan([]byte(`{"type":"invokefunction","invocation_id":"i-1","function_id":"math::add","data":{"a":2}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(f.Type, string(f.FunctionID), string(f.Data))
	// Output: invokefunction math::add {"a":2}
}

func ExampleFrame_Append() {
	f := wire.Frame{
		Type:         wire.TypeInvocationResult,
		InvocationID: []byte("i-1"),
		Error:        wire.AppendError(nil, &wire.Error{Code: "X", Message: "no number"}),
	}
	fmt.Printf("%s\n", f.Append(nil))
	// Output:
	// {"type":"invocationresult","invocation_id":"i-1","error":{"code":"X","message":"no number"}}
}

func ExampleParseError() {
	err := wire.ParseError([]byte(`{"code":"function_not_found","message":"no such function"}`))
	fmt.Println(errors.Is(err, &wire.Error{Code: wire.CodeFunctionNotFound}))
	// Output: true
}
