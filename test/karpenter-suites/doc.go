// Package suites names Karpenter's own end-to-end suites as dependencies of this module: README.md says what for.
package suites
