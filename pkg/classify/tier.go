package classify

// ranks order the tiers by what they promise. Tiers that are not here, "auto" among them, promise nothing.
// "fast or priority requested: the response says priority" (wire-formats 5d); ultrafast is served as itself (6).
var ranks = map[string]int{
	"flex":          1,
	"batch":         1,
	"default":       2,
	"standard":      2,
	"standard_only": 2,
	"on_demand":     2,
	"scale":         3,
	"provisioned":   3, // what a caller may say of an Azure deployment with spill-over
	"priority":      3,
	"fast":          3,
	"ultrafast":     4,
}

// downgraded reports whether a lower tier was served than asked for, as far as both are known.
func downgraded(asked, served string) bool {
	a, s := ranks[asked], ranks[served]
	return s != 0 && s < a
}
