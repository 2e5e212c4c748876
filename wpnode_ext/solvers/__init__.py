"""Time stepping: Runge-Kutta and exponential steps, rollouts, losses that integrate."""
