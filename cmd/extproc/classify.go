package main

import "context"

func classifyFiles(_ context.Context, args []string, io std) error { return errUsage }

func demo(_ context.Context, args []string, io std) error { return errUsage }
