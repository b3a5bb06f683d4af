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

	// Bedrock (wire-formats 2c): "reserved overflows silently to standard".
	"reserved": 3,

	// Gemini (wire-formats 8), as older docs write it, and Vertex's trafficType.
	"SERVICE_TIER_FLEX":      1,
	"SERVICE_TIER_STANDARD":  2,
	"SERVICE_TIER_PRIORITY":  3,
	"ON_DEMAND_FLEX":         1,
	"ON_DEMAND_OFFPEAK":      1,
	"ON_DEMAND":              2,
	"ON_DEMAND_PRIORITY":     3,
	"PROVISIONED_THROUGHPUT": 3,
}

// downgraded reports whether a lower tier was served than asked for, as far as both are known.
func downgraded(asked, served string) bool {
	a, s := ranks[asked], ranks[served]
	return s != 0 && s < a
}
