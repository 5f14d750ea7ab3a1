package console

// Row is a row of the route table.
type Row struct {
	Method, Path string
	Who          int
}

// Who may ask, as in the table.
const (
	ForAnyone   = int(forAnyone)
	ForPerson   = int(forPerson)
	ForMember   = int(forMember)
	ForOwner    = int(forOwner)
	ForOperator = int(forOperator)
)

// Table is the route table.
func Table() (rows []Row) {
	for _, r := range routes() {
		rows = append(rows, Row{r.method, r.path, int(r.who)})
	}
	return rows
}
