//! Hashes, HMACs and the cipher that networks ask for.

use attribution::facts::device_ids::hex;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use openssl::symm::{Cipher, encrypt};
use sha2::{Digest as _, Sha256};

const BLOCK_BYTES: usize = 64;

pub(crate) fn md5_hex(text: impl AsRef<[u8]>) -> String {
    let digest: [u8; 16] = Md5::digest(text).into();
    hex(&digest)
}

pub(crate) fn sha256_hex(text: impl AsRef<[u8]>) -> String {
    let digest: [u8; 32] = Sha256::digest(text).into();
    hex(&digest)
}

/// The HMAC of RFC 2104.
pub(crate) fn hmac_sha256(key: &[u8], text: &[u8]) -> [u8; 32] {
    let hashed: [u8; 32] = Sha256::digest(key).into();
    let key = if key.len() > BLOCK_BYTES { &hashed[..] } else { key };
    let padded = |pad: u8| -> Vec<u8> {
        let block = key.iter().copied().chain(std::iter::repeat(0)).take(BLOCK_BYTES);
        block.map(|byte| byte ^ pad).collect()
    };
    let inner = Sha256::new().chain_update(padded(0x36)).chain_update(text).finalize();
    Sha256::new().chain_update(padded(0x5c)).chain_update(inner).finalize().into()
}

pub(crate) fn hmac_sha256_hex(key: &[u8], text: &[u8]) -> String {
    hex(&hmac_sha256(key, text))
}

/// A key of AES-128.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct AesKey([u8; 16]);

impl AesKey {
    /// Returns `None` if the text is not 16 bytes in base64.
    pub fn from_base64(text: &str) -> Option<Self> {
        STANDARD.decode(text.trim()).ok()?.try_into().ok().map(Self)
    }

    /// Encrypts with AES-128 in ECB mode with PKCS #7 padding, and returns base64; `None` if OpenSSL refuses. ECB is
    /// what networks ask for.
    pub fn encrypt(&self, text: &str) -> Option<String> {
        let encrypted = encrypt(Cipher::aes_128_ecb(), &self.0, None, text.as_bytes()).ok()?;
        Some(STANDARD.encode(encrypted))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hmacs_are_those_of_the_rfc() {
        let check = |key: &[u8], text: &str, expected: &str| {
            assert_eq!(hmac_sha256_hex(key, text.as_bytes()), expected);
        };
        check(
            &[0x0b; 20],
            "Hi There",
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7",
        );
        check(
            &[0xaa; 131],
            "Test Using Larger Than Block-Size Key - Hash Key First",
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54",
        );
    }

    #[test]
    fn ids_are_hashed_as_networks_show() {
        let check = |raw: &str, expected: &str| assert_eq!(md5_hex(raw), expected);
        check("868823031739689", "0c2bd03c39f19845bf54ea0abafae70e");
        check("97e7ef3f-e5f2-d0b8-ccfc-f79bbeaf4841", "87f8274c36eb73fabcbf143a10eca6a4");
        check("7b5ca2d57178d2f1", "873541edf36da9170af47d5b69e82193");
        check("868049039501257", "8d3ebd3654fb46a2832296669cf1b536");
        check("10bc955ac2a675d3", "f703b39228c8c5cf8069051d86a20747");
        let md5 = md5_hex("1fe9a970-efbb-29e0-0bdd-f5dbbf751ab5");
        let expected = "a58f9fffa86c12e6fb43f5232a46d53ef06196f4be138d185a09b1294c736c50";
        assert_eq!(sha256_hex(&md5), expected);
    }

    /// As printed by `openssl enc -aes-128-ecb -K 2b7e151628aed2a6abf7158809cf4f3c -a`.
    #[test]
    fn a_key_encrypts_blocks_with_padding() {
        let key = AesKey::from_base64("K34VFiiu0qar9xWICc9PPA==").unwrap();
        let check = |text: &str, expected: &str| {
            assert_eq!(key.encrypt(text).as_deref(), Some(expected), "{text}");
        };
        check("", "olS+iOA33dnXn7ZBHD+d+A==");
        // The second block is the padding.
        check("0123456789abcdef", "XZyvAlKe4ALc/ysT/xqPcKJUvojgN93Z15+2QRw/nfg=");
        check(
            "97e7ef3f-e5f2-d0b8-ccfc-f79bbeaf4841",
            "avN42ZFm1Fl+x8HjyuCn6YAd192aaLXHnOk5TTWQUiB+tYdHjsARK/efb4adyJZ5",
        );
    }

    #[test]
    fn a_key_has_16_bytes() {
        assert!(AesKey::from_base64("K34VFiiu0qar9xWICc9PPA==").is_some());
        for wrong in ["", "x", "K34VFiiu0qar9xWICc9P", "K34VFiiu0qar9xWICc9PPAA="] {
            assert!(AesKey::from_base64(wrong).is_none(), "{wrong}");
        }
    }
}
