package apikey

// What the tests need of the inside.
var (
	Bearer = bearer
	Mint   = mint
)
