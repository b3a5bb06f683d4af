// Package story proves what an operator lives through in an outage: a real Prometheus with the alert rules as they are
// pages for the right target, and the status page tells where the traffic went, until all is well again.
// scripts/story.sh runs its test, with all that it needs.
package story
