package kernel

// fma is x*y + z, rounded once: the compiler makes one FMADDS of it.
func fma(x, y, z float32) float32 { return x*y + z }
