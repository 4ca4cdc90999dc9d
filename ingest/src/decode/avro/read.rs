//! Reads values by a plan, borrowed from the bytes.

use std::borrow::Cow;

use num_bigint::BigInt;

use super::super::value::{Members, Value};
use super::primitives::{Bytes, Problem};
use super::reader_schema::{FastPath, Field, Kind, KindId, Schema};
use crate::decode::event::EVENT_BYTES_MAX;

/// How deep values may stand in each other.
const DEPTH_MAX: u8 = 64;
/// Digits of a decimal that are looked at; more are no amount of money.
const DECIMAL_BYTES_MAX: usize = 32;

const NO_BRANCH: Problem = "a union has no such branch";
const TOO_MUCH: Problem = "it holds more than an event may have bytes";
const UNION_IN_UNION: Problem = "a union holds a union";

/// A decimal in any of the types that can hold one.
#[derive(Debug)]
pub enum Amount<'a> {
    Text(Cow<'a, str>),
    Other(Value<'a>),
}

impl Default for Amount<'_> {
    fn default() -> Self {
        Self::Text(Cow::Borrowed(""))
    }
}

/// Reads one datum.
pub struct Reader<'a, 's> {
    schema: &'s Schema,
    bytes: Bytes<'a>,
    length: usize,
    depth: u8,
    /// What may still be done for what is within fields: a value is 1, and a text that stands in
    /// the schema its length. Few bytes can mean very many values, or very long texts.
    budget: usize,
}

impl<'a, 's> Reader<'a, 's> {
    pub fn new(schema: &'s Schema, datum: &'a [u8]) -> Self {
        let budget = EVENT_BYTES_MAX;
        Self { schema, bytes: Bytes(datum), length: datum.len(), depth: 0, budget }
    }

    pub fn is_at_end(&self) -> bool {
        self.bytes.0.is_empty()
    }

    /// Where it stands, for a message.
    pub fn place(&self) -> String {
        format!("at byte {} of {}", self.length - self.bytes.0.len(), self.length)
    }

    /// The record that the datum is: its fields, to be read one after the other.
    pub fn record(&mut self) -> Result<&'s [Field], Problem> {
        match self.chosen(self.schema.root)? {
            Kind::Record(fields) => Ok(fields),
            _ => Err("it is no record"),
        }
    }

    /// The value of a field.
    #[inline]
    pub fn field(&mut self, field: &'s Field) -> Result<Value<'a>, Problem> {
        match field.shape {
            FastPath::Text => self.bytes.text().map(Value::Text),
            FastPath::TextOrNull(null) => match self.bytes.long()? {
                place if place == null => Ok(Value::Absent),
                0 | 1 => self.bytes.text().map(Value::Text),
                _ => Err(NO_BRANCH),
            },
            FastPath::Number(unit) => Ok(whole(self.bytes.long()?, unit)),
            FastPath::Other => self.value(field.kind),
        }
    }

    pub fn value(&mut self, kind: KindId) -> Result<Value<'a>, Problem> {
        match self.chosen(kind)? {
            Kind::Null => Ok(Value::Absent),
            Kind::String => self.bytes.text().map(Value::Text),
            kind => self.other_value(kind),
        }
    }

    /// One that is no text: most are.
    fn other_value(&mut self, kind: &'s Kind) -> Result<Value<'a>, Problem> {
        Ok(match kind {
            Kind::Null | Kind::String | Kind::Union(_) => return Err(UNION_IN_UNION),
            Kind::Boolean => self.bytes.boolean().map(|_| Value::Boolean)?,
            Kind::Int => whole(self.bytes.int()?.into(), 1),
            Kind::Long => whole(self.bytes.long()?, 1),
            Kind::Timestamp(unit) => whole(self.bytes.long()?, *unit),
            Kind::OtherLong(what) => self.bytes.long().map(|_| Value::Other(what))?,
            Kind::Float => self.bytes.array::<4>().map(|_| Value::Float)?,
            Kind::Double => self.bytes.array::<8>().map(|_| Value::Float)?,
            Kind::Decimal { size, .. } => {
                self.unscaled(*size).map(|_| Value::Other("a decimal"))?
            }
            // A text by Avro's rules, if it is one.
            Kind::Bytes => match std::str::from_utf8(self.bytes.blob()?) {
                Ok(text) => Value::Text(text),
                Err(_) => Value::Other("bytes that are no UTF-8"),
            },
            Kind::OtherBytes(what) => self.bytes.blob().map(|_| Value::Other(what))?,
            Kind::Fixed(size) => self.bytes.take(*size).map(|_| Value::Other("bytes"))?,
            Kind::Enum(symbols) => {
                let place = self.bytes.count()?;
                let symbol = symbols.get(place).ok_or("an enum has no such symbol")?;
                self.spend(symbol.len())?;
                Value::Resolved(symbol.clone())
            }
            Kind::Array(items) => {
                self.blocks(|reader| reader.deeper(|reader| reader.skip(*items)))?;
                Value::List
            }
            Kind::Map(values) => {
                let mut members = Members::default();
                self.blocks(|reader| {
                    let key = reader.bytes.text()?;
                    let value = reader.deeper(|reader| reader.value(*values))?;
                    members.add(key, value);
                    Ok(())
                })?;
                Value::Object(members.into())
            }
            Kind::Record(fields) => {
                let mut members = Members::default();
                for field in fields {
                    let value = self.deeper(|reader| reader.field(field))?;
                    self.spend(field.name.len())?;
                    members.add(&field.name, value);
                }
                Value::Object(members.into())
            }
        })
    }

    /// An amount of money: numbers by the shortest text that is this number, as 9.99.
    pub fn amount(&mut self, kind: KindId) -> Result<Amount<'a>, Problem> {
        let before = self.bytes;
        Ok(match self.chosen(kind)? {
            Kind::Null => Amount::default(),
            Kind::String => Amount::Text(self.bytes.text()?.into()),
            Kind::Int => Amount::Text(self.bytes.int()?.to_string().into()),
            Kind::Long => Amount::Text(self.bytes.long()?.to_string().into()),
            Kind::Float => Amount::Text(f32::from_le_bytes(self.bytes.array()?).to_string().into()),
            Kind::Double => {
                Amount::Text(f64::from_le_bytes(self.bytes.array()?).to_string().into())
            }
            Kind::Decimal { size, scale } => {
                let unscaled = self.unscaled(*size)?;
                Amount::Text(decimal(unscaled, *scale).into())
            }
            _ => {
                self.bytes = before;
                match self.value(kind)? {
                    Value::Text(text) => Amount::Text(text.into()),
                    other => Amount::Other(other),
                }
            }
        })
    }

    pub fn skip(&mut self, kind: KindId) -> Result<(), Problem> {
        match self.chosen(kind)? {
            Kind::Null => {}
            Kind::Boolean => self.bytes.boolean().map(drop)?,
            Kind::Int => self.bytes.int().map(drop)?,
            Kind::Long | Kind::Timestamp(_) | Kind::OtherLong(_) => self.bytes.long().map(drop)?,
            Kind::Float => self.bytes.array::<4>().map(drop)?,
            Kind::Double => self.bytes.array::<8>().map(drop)?,
            Kind::Decimal { size, .. } => self.unscaled(*size).map(drop)?,
            Kind::Bytes | Kind::OtherBytes(_) => self.bytes.blob().map(drop)?,
            // What nobody reads is text too.
            Kind::String => self.bytes.text().map(drop)?,
            Kind::Fixed(size) => self.bytes.take(*size).map(drop)?,
            Kind::Enum(symbols) => {
                let place = self.bytes.count()?;
                symbols.get(place).ok_or("an enum has no such symbol")?;
            }
            Kind::Array(items) => {
                self.blocks(|reader| reader.deeper(|reader| reader.skip(*items)))?;
            }
            Kind::Map(values) => self.blocks(|reader| {
                reader.bytes.text()?;
                reader.deeper(|reader| reader.skip(*values))
            })?,
            Kind::Record(fields) => {
                for field in fields {
                    self.deeper(|reader| reader.skip(field.kind))?;
                }
            }
            Kind::Union(_) => return Err(UNION_IN_UNION),
        }
        Ok(())
    }

    /// The kind, of a union the one that is there.
    #[inline]
    fn chosen(&mut self, kind: KindId) -> Result<&'s Kind, Problem> {
        match self.schema.kind(kind) {
            Kind::Union(branches) => {
                let branch = branches.get(self.bytes.count()?);
                Ok(self.schema.kind(*branch.ok_or(NO_BRANCH)?))
            }
            kind => Ok(kind),
        }
    }

    fn unscaled(&mut self, size: Option<usize>) -> Result<&'a [u8], Problem> {
        match size {
            Some(size) => self.bytes.take(size),
            None => self.bytes.blob(),
        }
    }

    /// Reads the elements of an array or of a map.
    fn blocks(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        loop {
            let (count, bytes) = self.bytes.block()?;
            if count == 0 {
                return Ok(());
            }
            if count > self.budget as u64 {
                return Err(TOO_MUCH);
            }
            let before = self.bytes.0.len();
            for _ in 0..count {
                one(self)?;
            }
            if bytes.is_some_and(|bytes| before - self.bytes.0.len() != bytes) {
                return Err("a block is not as long as it says");
            }
        }
    }

    fn spend(&mut self, cost: usize) -> Result<(), Problem> {
        self.budget = self.budget.checked_sub(cost).ok_or(TOO_MUCH)?;
        Ok(())
    }

    fn deeper<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        if self.depth >= DEPTH_MAX {
            return Err("it is deeper than 64 levels");
        }
        self.spend(1)?;
        self.depth += 1;
        let outcome = read(self);
        self.depth -= 1;
        outcome
    }
}

fn whole<'a>(number: i64, unit: u64) -> Value<'a> {
    u64::try_from(number).map_or(Value::Negative, |number| Value::Unsigned(number / unit))
}

/// The text of a decimal with so many digits after its point.
fn decimal(unscaled: &[u8], scale: usize) -> String {
    if unscaled.len() > DECIMAL_BYTES_MAX || scale > 2 * DECIMAL_BYTES_MAX {
        return "too long".to_owned();
    }
    let number = BigInt::from_signed_bytes_be(unscaled);
    let sign = if number.sign() == num_bigint::Sign::Minus { "-" } else { "" };
    let digits = format!("{:0>1$}", number.magnitude().to_string(), scale + 1);
    let (whole, fraction) = digits.split_at(digits.len() - scale);
    if scale == 0 { format!("{sign}{whole}") } else { format!("{sign}{whole}.{fraction}") }
}

#[cfg(test)]
mod tests {
    use super::decimal;

    #[test]
    fn decimals() {
        assert_eq!(decimal(&[], 0), "0");
        assert_eq!(decimal(&[0], 2), "0.00");
        assert_eq!(decimal(&[5], 2), "0.05");
        assert_eq!(decimal(&[0xff], 2), "-0.01");
        assert_eq!(decimal(&[0x03, 0xde], 2), "9.90");
        assert_eq!(decimal(&[0x80], 0), "-128");
        assert_eq!(decimal(&[0x7f; 16], 10).len(), 40);
    }
}
