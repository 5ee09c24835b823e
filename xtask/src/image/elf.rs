//! Whether a binary runs alone, on the processor that it is for.

use anyhow::{Context, Result, ensure};

use super::Platform;

/// Kind of a segment that names the program which loads libraries.
const INTERPRETER: u32 = 3;

/// An error if the binary is for another processor, or needs libraries. Numbers are those of the ELF specification for
/// 64 bits, least byte first.
pub(super) fn check(platform: Platform, binary: &[u8]) -> Result<()> {
    ensure!(binary.starts_with(b"\x7fELF\x02\x01"), "not an ELF binary of 64 bits");
    let machine = match platform {
        Platform::Amd64 => 0x3e,
        Platform::Arm64 => 0xb7,
    };
    let found = number(binary, 18, 2)?;
    ensure!(found == machine, "for machine {found:#x}, not {machine:#x}");
    let (table, size, count) = (number(binary, 32, 8)?, number(binary, 54, 2)?, number(binary, 56, 2)?);
    ensure!(count > 0, "without segments");
    for index in 0..count {
        let at = table.saturating_add(index.saturating_mul(size));
        let kind = number(binary, usize::try_from(at)?, 4)?;
        ensure!(kind != u64::from(INTERPRETER), "not linked statically: it needs a loader of libraries");
    }
    Ok(())
}

fn number(binary: &[u8], at: usize, length: usize) -> Result<u64> {
    let end = at.checked_add(length).context("cut off")?;
    let bytes = binary.get(at..end).context("cut off")?;
    Ok(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header, and segments of these kinds.
    pub(crate) fn binary(machine: u8, segments: &[u8]) -> Vec<u8> {
        let mut binary = vec![0; 64];
        binary[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (binary[18], binary[32], binary[54], binary[56]) = (machine, 64, 56, u8::try_from(segments.len()).unwrap());
        for kind in segments {
            binary.push(*kind);
            binary.extend([0; 55]);
        }
        binary
    }

    #[test]
    fn a_binary_is_taken_if_it_is_static_and_for_the_processor() {
        check(Platform::Amd64, &binary(0x3e, &[1, 1, 2])).unwrap();
        check(Platform::Arm64, &binary(0xb7, &[1])).unwrap();
        for (binary, reason) in [
            (binary(0xb7, &[1]), "for machine 0xb7, not 0x3e"),
            (binary(0x3e, &[1, 3]), "not linked statically: it needs a loader of libraries"),
            (binary(0x3e, &[]), "without segments"),
            (b"#!/bin/sh".to_vec(), "not an ELF binary of 64 bits"),
            (binary(0x3e, &[1, 1])[..80].to_vec(), "cut off"),
        ] {
            assert_eq!(check(Platform::Amd64, &binary).unwrap_err().to_string(), reason);
        }
    }
}
