package store_test

const childEnv = "PLINTH_STORE_CHILD"

func child() int { return 0 }
