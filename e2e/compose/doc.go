// Package compose proves the demo stack: the compose file that users run is brought up unchanged and driven from outside.
// scripts/compose.sh runs its test, with a Docker daemon and the images it needs.
package compose
