"""Exact sums of floating-point numbers: integers that are rounded once, when they are read.

A number is a whole multiple of 2^-1074, so that its sum is an integer of 2,098 bits and some carries (Kulisch, 1986).
Numbers of like size, such as readings, are added in 128 bits, whose unit the first of them sets; others in digits of 32
bits, which are 64 bits wide and never carry while they are added to. What adds a number and removes it again leaves the
very bits, and no order or grouping of additions shows in a result. Either holds 2^31 numbers.
"""

from typing import Final

import numpy as np

from hypergrid.continuous.engine.batch import Integers
from hypergrid.continuous.engine.kernels.compiled import Word, index, jit_apart, jit_inline

LOWER, UPPER, LIMIT, STOP, LOW, PLUS, MINUS, DIGITS = range(8)
"""Offsets in the words of a sum.

Both halves of the 128 bits, one more than the greatest exponent that fits them, one more than the greatest digit in
use, the least digit in use, infinities of both signs, first digit. `STOP` is 0 if there is nothing but the 128 bits.
"""
SHIFTS: Final = 44
"""Exponents that fit the 128 bits: 53 bits of a number, moved by 43 at most, 2^31 times."""
BELOW: Final = 28
"""How far the first number is below `LIMIT`: those up to 65,536 times as small and 100 million times as large fit, too.

Sums up to 65,536 times as large are read without looking for their highest bit.
"""
SMALL: Final = 1 << 21
"""Upper halves below it have at most 53 bits with the upper quarter below them."""
COUNT: Final = 68
"""Digits of a sum."""
WORDS: Final = DIGITS + COUNT
"""Words of a sum."""
LEAST_LIMIT, LIMITS = 97, 1920
"""Limits by which all that the 128 bits can hold is 0 or a number of 53 bits: the least one, and how many there are."""
MANTISSA: Final = (1 << 52) - 1
DIGIT: Final = (1 << 32) - 1
NAN_BITS: Final = 0x7FF8000000000000
INFINITY_BITS: Final = 0x7FF0000000000000
MAGNITUDE: Final = 0x7FFFFFFFFFFFFFFF
"""All bits of a number but its sign."""


@jit_inline
def sum_near(lower: Word, upper: Word, bits: Word, sign: Word, below: Word) -> tuple[Word, Word]:
    """Return both halves of 128 bits to which a number is added, its exponent `below` their limit."""
    flip = (bits >> 63) ^ (sign >> 63)
    mantissa = (((bits & MANTISSA) | (1 << 52)) ^ flip) - flip
    # Shifts stay defined where a number does not fit; its sum is not used.
    shift = (SHIFTS - below) & 63
    added = np.uint64(mantissa) << np.uint64(shift)
    total = np.uint64(lower) + added
    return np.int64(total), upper + ((mantissa >> 1) >> (63 - shift)) + np.int64(total < added)


@jit_inline
def add_near(words: Integers, row: Word, base: Word, bits: Word, sign: Word, below: Word) -> None:
    """Add a number to the 128 bits, its exponent `below` their limit."""
    lower, upper = words[row, index(base + LOWER)], words[row, index(base + UPPER)]
    words[row, index(base + LOWER)], words[row, index(base + UPPER)] = sum_near(lower, upper, bits, sign, below)


@jit_inline
def add_number(words: Integers, row: Word, base: Word, bits: Word, sign: Word) -> None:
    """Add a number, given by its bits, to the sum at `words[row, base:]`, or remove it: `sign` is 1 or -1."""
    below = words[row, index(base + LIMIT)] - ((bits >> 52) & 0x7FF)
    # Of those that do not fit, too, one comparison: negative integers are great ones without a sign.
    if np.uint64(below - 1) < np.uint64(SHIFTS):
        add_near(words, row, base, bits, sign, below)
    else:
        add_rare_number(words, row, base, bits, sign)


@jit_apart
def add_rare_number(words: Integers, row: Word, base: Word, bits: Word, sign: Word) -> None:
    """Add a number that is 0, the first, or of another size than the first."""
    exponent = (bits >> 52) & 0x7FF
    mantissa = bits & MANTISSA
    if exponent == 0x7FF:
        words[row, base + (MINUS if bits < 0 else PLUS)] += sign
        words[row, base + STOP] = max(words[row, base + STOP], 1)
        return
    if exponent == 0:
        if mantissa == 0:
            return
        exponent = 1
    else:
        if (words[row, base + LOWER] | words[row, base + UPPER]) == 0:
            limit = min(max(exponent + BELOW, SHIFTS + 1), 0x7FF)
            words[row, base + LIMIT] = limit
            add_near(words, row, base, bits, sign, limit - exponent)
            return
        mantissa |= 1 << 52
    if bits < 0:
        sign = -sign
    shift = (exponent - 1) & 31
    digit = (exponent - 1) >> 5
    add_digit(words, row, base, digit, sign * ((mantissa << shift) & DIGIT))
    upper = mantissa >> (32 - shift)
    add_digit(words, row, base, digit + 1, sign * (upper & DIGIT))
    add_digit(words, row, base, digit + 2, sign * (upper >> 32))


@jit_inline
def add_digit(words: Integers, row: Word, base: Word, digit: Word, value: Word) -> None:
    """Add to a digit."""
    low, stop = words[row, base + LOW], words[row, base + STOP]
    words[row, base + DIGITS + digit] += value
    words[row, base + LOW] = digit if stop == 0 else min(low, digit)
    words[row, base + STOP] = max(stop, digit + 1)


@jit_inline
def add_near_digits(words: Integers, row: Word, base: Word, factor: Word) -> None:
    """Add the 128 bits, `factor` times, to the digits."""
    near = words[row, base + LOWER], words[row, base + UPPER], words[row, base + LIMIT]
    add_digits(words, row, base, near, factor)


@jit_apart
def add_digits(words: Integers, row: Word, base: Word, near: tuple[Word, Word, Word], factor: Word) -> None:
    """Add 128 bits, given by their halves and limit, `factor` times to the digits."""
    start = near[2] - SHIFTS - 1
    if start < 0:
        return
    digit, shift = start >> 5, start & 31
    for number in range(4):
        half = near[0] if number < 2 else near[1]
        # All but the highest part are without a sign.
        part = half >> 32 if number == 3 else (half >> 32 * (number & 1)) & DIGIT
        moved = part << shift
        add_digit(words, row, base, digit + number, factor * (moved & DIGIT))
        add_digit(words, row, base, digit + number + 1, factor * (moved >> 32))


@jit_inline
def is_small(upper: Word, limit: Word) -> Word:
    """Return whether `read_small` gives what 128 bits of a limit hold."""
    return (np.uint64(limit - LEAST_LIMIT) < np.uint64(LIMITS)) & (np.uint64(upper + SMALL) < np.uint64(2 * SMALL))


@jit_inline
def read_small(lower: Word, upper: Word, limit: Word) -> Word:
    """Return the number nearest to what 128 bits hold, ties to even."""
    # The first two parts and their sum are exact, so that only adding the third rounds; so is the factor.
    high = np.float64(upper) * 2.0**64 + np.float64((lower >> 32) & DIGIT) * 2.0**32
    return (high + np.float64(lower & DIGIT)) * np.int64((limit - LEAST_LIMIT + 1) << 52).view(np.float64)


@jit_inline
def read_sum(words: Integers, row: Word, base: Word) -> Word:
    """Return the number nearest to a sum, ties to even; NaN for infinities of both signs."""
    upper, lower = words[row, index(base + UPPER)], words[row, index(base + LOWER)]
    limit = words[row, index(base + LIMIT)]
    if (words[row, index(base + STOP)] == 0) & is_small(upper, limit):
        return read_small(lower, upper, limit)
    return np.int64(read_large_sum(words, row, base)).view(np.float64)


@jit_apart
def read_large_sum(words: Integers, row: Word, base: Word) -> Word:
    """Return the bits of what `read_sum` returns, for a sum whose highest bit is anywhere."""
    upper, lower = words[row, index(base + UPPER)], np.uint64(words[row, index(base + LOWER)])
    if words[row, index(base + STOP)] != 0:
        return read_long_sum(words, row, base)
    is_negative = upper < 0
    if is_negative:
        lower = ~lower + np.uint64(1)
        upper = ~upper
        if lower == np.uint64(0):
            upper += 1
    # Of the lowest bit: exponents of numbers count from 1075 below 0.
    power = words[row, index(base + LIMIT)] - SHIFTS - 1075
    if upper != 0:
        # Move the highest bit up; whether anything below was not 0 is kept in the last of 64 bits, for the rounding.
        shift = 1086 - (np.float64(upper).view(np.int64) >> 52)
        joined = np.uint64(upper) << np.uint64(shift)
        rest = lower << np.uint64(shift)
        if shift > 0:
            joined |= lower >> np.uint64(64 - shift)
        lower = joined | np.uint64(rest != np.uint64(0))
        power += 64 - shift
    if lower == np.uint64(0):
        return np.int64(0)
    # The processor rounds 64 bits to a number, ties to even; its exponent is then moved.
    bits: Word = np.float64(lower).view(np.int64)
    exponent = (bits >> 52) + power
    if (exponent < 1) | (exponent > 2046):
        return read_long_sum(words, row, base)
    bits += power << 52
    return np.int64(bits - (1 << 62) - (1 << 62)) if is_negative else bits


@jit_apart
def read_long_sum(words: Integers, row: Word, base: Word) -> Word:
    """Return the bits of the number nearest to a sum of any numbers, as `read_sum` does."""
    plus, minus = words[row, base + PLUS], words[row, base + MINUS]
    if plus > 0 or minus > 0:
        if plus > 0 and minus > 0:
            return NAN_BITS
        return INFINITY_BITS if plus > 0 else np.int64(INFINITY_BITS - (1 << 62) - (1 << 62))
    add_near_digits(words, row, base, 1)
    bits = read_digits(words, row, base)
    add_near_digits(words, row, base, -1)
    is_used = False
    for digit in range(words[row, base + LOW], words[row, base + STOP]):
        is_used |= words[row, base + DIGITS + digit] != 0
    if not is_used:
        words[row, base + LOW] = words[row, base + STOP] = 0
    return bits


@jit_apart
def read_digits(words: Integers, row: Word, base: Word) -> Word:
    """Return the bits of the number nearest to what the digits hold."""
    low, stop = words[row, base + LOW], words[row, base + STOP]
    factor = np.int64(1)
    while True:
        # The top three digits of the absolute value, and whether anything below is not 0.
        top, second, third, rest = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
        zeros, at, carry, digit = 0, 0, np.int64(0), low
        while digit < stop or carry > 0:
            value: Word = carry
            if digit < stop:
                value += factor * words[row, base + DIGITS + digit]
            carry = value >> 32
            value &= DIGIT
            if value == 0:
                zeros += 1
            else:
                for _ in range(min(zeros, 3)):
                    rest |= third
                    third, second, top = second, top, np.int64(0)
                rest |= third
                third, second, top = second, top, value
                zeros, at = 0, digit
            digit += 1
        if carry == 0:
            break
        # The sum is negative.
        factor = -factor
    if top == 0:
        return np.int64(0)
    # Bits of `top`, by the exponent of it as a number.
    width = (np.float64(top).view(np.int64) >> 52) - 1022
    # `at`, the digit of `top`, counts 32 bits from 2^-1074; the value has its highest bit at `power` from there.
    power = 32 * at + width - 1
    joined = (np.uint64(top) << np.uint64(32)) | np.uint64(second)
    shift = np.uint64(32 - width)
    lower = np.uint64(third) << shift
    joined = (joined << shift) | (lower >> np.uint64(32))
    if (lower & np.uint64(DIGIT)) != 0:
        rest |= 1
    if power < 53:
        # Whole multiples of the least number: nothing is rounded.
        mantissa = np.int64(joined >> np.uint64(63 - power))
        bits = mantissa
    else:
        mantissa = np.int64(joined >> np.uint64(11))
        below = np.int64(joined & np.uint64(2047))
        if below > 1024 or (below == 1024 and (rest != 0 or (mantissa & 1) == 1)):
            mantissa += 1
        # A carry out of the mantissa raises the exponent by itself.
        bits = (np.int64(power - 51) << 52) + (mantissa - (1 << 52))
        if bits >= INFINITY_BITS:
            bits = np.int64(INFINITY_BITS)
    return bits if factor > 0 else np.int64(bits - (1 << 62) - (1 << 62))
