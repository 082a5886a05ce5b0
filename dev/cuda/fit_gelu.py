"""Fits what gelu needs of the normal distribution (galaxy/cuda/activation.cuh): P(Z > z) * exp(z^2/2), z >= 0, as a polynomial of t = 1/(1 + 0.3 z).

    build/venv/bin/python dev/cuda/fit_gelu.py      needs numpy and mpmath (PyTorch brings both: dev/ref/venv.sh)

Prints the coefficients of t, t^2, ... in fp32, the polynomial's largest relative error, and that of its value in fp32, up to z = 14, where exp(-z^2/2) is
next to nothing in fp32. The fit is a least-squares one of relative errors, whose weights grow where the error is large until it is about the same everywhere (Lawson
1961).
"""
import mpmath
import numpy as np

SCALE, DEGREE, LAST, POINTS = 0.3, 8, 14.0, 600


def wanted(z):
    return mpmath.erfc(z / mpmath.sqrt(2)) / 2 * mpmath.exp(z * z / 2)


def fitted(t, y):
    powers = np.array([[x**k for k in range(1, DEGREE + 1)] for x in t])
    weight, best, least = np.ones(len(t)), None, np.inf
    for _ in range(200):
        root = np.sqrt(weight)
        coefficients = np.linalg.lstsq(powers * (root / y)[:, None], root, rcond=None)[0]
        error = np.abs(powers @ coefficients / y - 1)
        if error.max() < least:
            best, least = coefficients, error.max()
        weight = weight * (error / error.max() + 1e-3)
        weight /= weight.max()
    return best.astype(np.float32), least


def value(coefficients, t):
    total = np.zeros_like(t)
    for c in coefficients[::-1]:
        total = (total.astype(np.float64) * t + c).astype(np.float32)  # as fmaf rounds
    return total * t


def main():
    mpmath.mp.dps = 40
    last = 1 / (1 + SCALE * LAST)
    t = last + (1 - last) * (1 + np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS)) / 2
    y = np.array([float(wanted((1 / mpmath.mpf(x) - 1) / SCALE)) for x in t])
    coefficients, error = fitted(t, y)
    print(*coefficients)
    print(f"relative error {error:.1e}, in fp32 {np.abs(value(coefficients, t.astype(np.float32)) / y - 1).max():.1e}")


main()
