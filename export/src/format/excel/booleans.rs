//! The words for true and false in the languages of spreadsheets.

use std::collections::HashSet;
use std::sync::LazyLock;

/// The words of LibreOffice 7.4 in all its locales, and those of Excel that differ.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "a si ngoho", "adevărat", "ala", "aplams", "asiyonyaniso", "been", "benar", "breug", "cert",
    "dhugaa", "diso", "dogry", "doğru", "düz", "egia", "egiazkoa", "epätosi", "eqqortoq",
    "eqqunngitsoq", "fals", "falsa", "falsch", "false", "falsk", "falskt", "falso", "falsum",
    "faltsua", "falz", "faux", "fałsz", "fìor", "fíor", "gaskiya", "gua'u", "gwir", "hamis",
    "haqiqiy", "hewa", "igaz", "ih", "karya", "marina", "nepravda", "net wier", "netacno",
    "netačno", "neteisingai", "netočno", "ngoho", "nibyo", "njewěrno", "ntiyiso", "onwaar",
    "patiess", "pravda", "prawda", "prawje", "rangt", "run", "rétt", "sai", "salah",
    "sand", "sann", "sant", "sibyo", "soba", "sonn", "soxta", "tacno", "tačno", "te'ete",
    "teisingai", "tosi", "točno", "true", "tõene", "usann", "vals", "verai", "verdadeiro",
    "verdadero", "veritat", "vero", "veru", "verum", "vrai", "vunwa", "väär", "waar", "wahr",
    "wier", "wopak", "wouer", "wěrno", "yanliş", "yinyaniso", "ósonn", "ýalňyş", "đúng",
    "ʻoiaʻiʻo", "αληθης", "λάθος", "σωστό", "ψευδης", "ақиқат", "брехня", "вярно", "жалган",
    "жалған", "истина", "ложь", "невярно", "несапраўдна", "нетачно", "неточно", "сапраўдна",
    "тачно", "точно", "хибність", "худал", "чын", "чындык", "ялган", "істина",
    "қалбакӣ", "үнэн", "ҳаққонӣ", "կեղծ", "ճշմարիտ", "خاطئ", "خطأ", "درست", "راست", "صح", "صحيح",
    "غلط", "نادرست", "يالغان", "गलत", "ठीक", "बेठीक", "सही", "মিথ্যা", "সত্য", "ਗਲਤ", "ਸਹੀ",
    "ખરું", "ખોટું", "ମିଛ", "ସତ", "தப்ப", "ஸரி", "అపాదము", "నిజము", "ಗಲತ್", "ಸಹೀ", "അതെ", "അല്ല",
    "จริง", "เท็จ", "ບໍ່ແມ່ນ", "ແມ່ນແລ້ວ", "མེན་", "ཨིན་", "မှန်", "မှား", "მცდარი", "ჭეშმარიტი",
    "ሓሶት", "ሓቂ", "ሔሰት", "አውነት", "ខុស", "ត្រូវ", "假", "真", "거짓", "참",
];
/// Maximum number of letters of a word.
const LETTERS_MAX: usize = 16;

/// Checks whether a spreadsheet in any language would convert the text to a boolean: in any case, in full-width
/// letters, surrounded by spaces, and with invisible characters anywhere.
pub(super) fn is_boolean(text: &str) -> bool {
    static KNOWN: LazyLock<HashSet<String>> =
        LazyLock::new(|| WORDS.iter().map(|word| word.to_uppercase()).collect());
    if text.chars().filter(|c| c.is_alphabetic()).nth(LETTERS_MAX).is_some() {
        return false;
    }
    let seen: String = text.chars().filter(|c| !is_unseen(*c)).map(narrow).collect();
    KNOWN.contains(&seen.trim().to_uppercase())
}

/// Checks for control characters, some of which spreadsheets drop, and Unicode characters without width.
pub(super) fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
                | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}'
                | '\u{feff}' | '\u{ffa0}' | '\u{e0000}'..='\u{e0fff}'
        )
}

/// Converts a full-width letter to its ordinary form.
fn narrow(character: char) -> char {
    match character {
        '\u{ff01}'..='\u{ff5e}' => {
            char::from_u32(u32::from(character) - 0xfee0).unwrap_or(character)
        }
        _ => character,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_recognised_in_every_case() {
        for word in WORDS {
            assert!(is_boolean(word) && is_boolean(&word.to_uppercase()), "{word}");
        }
        assert!(
            is_boolean("\u{ff34}\u{ff52}UE") && is_boolean(&format!("{}wa\0hr ", " ".repeat(900)))
        );
        assert!(!is_boolean("") && !is_boolean("truetruetruetruetrue") && !is_boolean("tr ue"));
    }
}
