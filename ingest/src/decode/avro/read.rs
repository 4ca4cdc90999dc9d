//! Reads values by a compiled schema, borrowed from the bytes.

use std::borrow::Cow;

use attribution::facts::device_ids::hex;
use num_bigint::BigInt;

use super::super::value::{Elements, Members, Text, Value};
use super::primitives::{Bytes, Problem};
use super::reader_schema::{FastPath, Field, Kind, KindId, Schema};
use crate::decode::event::EVENT_BYTES_MAX;

/// Maximum nesting of values.
const DEPTH_MAX: u8 = 64;
/// Maximum length of a decimal; a longer one is not an amount of money.
const DECIMAL_BYTES_MAX: usize = 32;

const NO_BRANCH: Problem = "a union has no such branch";
const BUDGET_EXCEEDED: Problem = "the values exceed the maximum size of an event";
const UNION_IN_UNION: Problem = "a union contains a union";

/// A decimal, from any type that can represent one.
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
    /// Remaining cost of nested values: 1 for each value, and the length of each text from the schema. A few bytes can
    /// expand to very many values, or very long texts.
    budget: usize,
}

impl<'a, 's: 'a> Reader<'a, 's> {
    pub fn new(schema: &'s Schema, datum: &'a [u8]) -> Self {
        let budget = EVENT_BYTES_MAX;
        Self { schema, bytes: Bytes(datum), length: datum.len(), depth: 0, budget }
    }

    pub fn is_at_end(&self) -> bool {
        self.bytes.0.is_empty()
    }

    /// Describes the current position for an error message.
    pub fn position(&self) -> String {
        format!("at byte {} of {}", self.length - self.bytes.0.len(), self.length)
    }

    /// Returns the fields of the datum's record, in the order in which they must be read.
    pub fn record(&mut self) -> Result<&'s [Field], Problem> {
        match self.resolve(self.schema.root)? {
            Kind::Record(fields) => Ok(fields),
            _ => Err("the event is not a record"),
        }
    }

    /// Reads the value of a field.
    #[inline]
    pub fn field(&mut self, field: &'s Field) -> Result<Value<'a>, Problem> {
        match field.fast_path {
            FastPath::Text => self.bytes.text().map(Value::Text),
            FastPath::TextOrNull(null) => match self.bytes.long()? {
                branch if branch == null => Ok(Value::Absent),
                0 | 1 => self.bytes.text().map(Value::Text),
                _ => Err(NO_BRANCH),
            },
            FastPath::Number(unit) => Ok(whole_number(self.bytes.long()?, unit)),
            FastPath::Other => self.value(field.kind),
        }
    }

    pub fn value(&mut self, kind: KindId) -> Result<Value<'a>, Problem> {
        match self.resolve(kind)? {
            Kind::Null => Ok(Value::Absent),
            Kind::String => self.bytes.text().map(Value::Text),
            kind => self.other_value(kind),
        }
    }

    /// Reads a value of a less frequent type than string or null.
    fn other_value(&mut self, kind: &'s Kind) -> Result<Value<'a>, Problem> {
        Ok(match kind {
            Kind::Null | Kind::String | Kind::Union(_) => return Err(UNION_IN_UNION),
            Kind::Boolean => self.bytes.boolean().map(|_| Value::Boolean)?,
            Kind::Int => whole_number(self.bytes.int()?.into(), 1),
            Kind::Long => whole_number(self.bytes.long()?, 1),
            Kind::Timestamp(unit) => whole_number(self.bytes.long()?, *unit),
            Kind::OtherLong(description) => self.bytes.long().map(|_| Value::Other(description))?,
            Kind::Float => Value::of_float(f32::from_le_bytes(self.bytes.array()?).into()),
            Kind::Double => Value::of_float(f64::from_le_bytes(self.bytes.array()?)),
            Kind::Decimal { size, .. } => {
                self.unscaled(*size).map(|_| Value::Other("a decimal"))?
            }
            // Avro's schema resolution reads bytes as a string, if they are UTF-8.
            Kind::Bytes => match std::str::from_utf8(self.bytes.blob()?) {
                Ok(text) => Value::Text(text),
                Err(_) => Value::Other("bytes that are not UTF-8"),
            },
            Kind::OtherBytes(description) => {
                self.bytes.blob().map(|_| Value::Other(description))?
            }
            Kind::Uuid => Value::Resolved(uuid_text(self.bytes.array()?).into()),
            Kind::Fixed(size) => self.bytes.take(*size).map(|_| Value::Other("bytes"))?,
            Kind::Enum(symbols) => {
                let index = self.bytes.count()?;
                let symbol = symbols.get(index).ok_or("an enum has no such symbol")?;
                self.spend(symbol.len())?;
                Value::Text(symbol)
            }
            Kind::Array(items) => {
                let mut elements = Elements::default();
                self.blocks(|reader| {
                    elements.add(reader.nested(|reader| reader.value(*items))?);
                    Ok(())
                })?;
                elements.finish()
            }
            Kind::Map(values) => {
                let mut members = Members::default();
                self.blocks(|reader| {
                    let key = reader.bytes.text()?;
                    let value = reader.nested(|reader| reader.value(*values))?;
                    members.add(key.into(), value);
                    Ok(())
                })?;
                Value::Object(members)
            }
            Kind::Record(fields) => {
                let mut members = Members::default();
                for field in fields {
                    let value = self.nested(|reader| reader.field(field))?;
                    self.spend(field.name.len())?;
                    members.add(Text::from(&*field.name), value);
                }
                Value::Object(members)
            }
        })
    }

    /// Reads an amount of money. A float becomes its shortest decimal text, such as 9.99.
    pub fn amount(&mut self, kind: KindId) -> Result<Amount<'a>, Problem> {
        let before = self.bytes;
        Ok(match self.resolve(kind)? {
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
            resolved => {
                self.bytes = before;
                match self.value(kind)? {
                    Value::Text(text) if !matches!(resolved, Kind::Enum(_)) => {
                        Amount::Text(text.into())
                    }
                    other => Amount::Other(other),
                }
            }
        })
    }

    pub fn skip(&mut self, kind: KindId) -> Result<(), Problem> {
        match self.resolve(kind)? {
            Kind::Null => {}
            // Skipped strings must be UTF-8 too.
            Kind::String => self.bytes.text().map(drop)?,
            Kind::Enum(symbols) => {
                let index = self.bytes.count()?;
                symbols.get(index).ok_or("an enum has no such symbol")?;
            }
            Kind::Array(items) => {
                self.blocks(|reader| reader.nested(|reader| reader.skip(*items)))?;
            }
            Kind::Map(values) => self.blocks(|reader| {
                reader.bytes.text()?;
                reader.nested(|reader| reader.skip(*values))
            })?,
            Kind::Record(fields) => {
                for field in fields {
                    self.nested(|reader| reader.skip(field.kind))?;
                }
            }
            // Values of the other kinds need no memory.
            kind => self.other_value(kind).map(drop)?,
        }
        Ok(())
    }

    /// Returns the kind; for a union, reads the index of the branch and returns the branch's kind.
    #[inline]
    fn resolve(&mut self, kind: KindId) -> Result<&'s Kind, Problem> {
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

    /// Reads the elements of an array or map.
    fn blocks(
        &mut self,
        mut read_element: impl FnMut(&mut Self) -> Result<(), Problem>,
    ) -> Result<(), Problem> {
        loop {
            let (count, bytes) = self.bytes.block()?;
            if count == 0 {
                return Ok(());
            }
            if count > self.budget as u64 {
                return Err(BUDGET_EXCEEDED);
            }
            let before = self.bytes.0.len();
            for _ in 0..count {
                read_element(self)?;
            }
            if bytes.is_some_and(|bytes| before - self.bytes.0.len() != bytes) {
                return Err("a block does not have its declared length");
            }
        }
    }

    fn spend(&mut self, cost: usize) -> Result<(), Problem> {
        self.budget = self.budget.checked_sub(cost).ok_or(BUDGET_EXCEEDED)?;
        Ok(())
    }

    fn nested<T>(
        &mut self,
        read: impl FnOnce(&mut Self) -> Result<T, Problem>,
    ) -> Result<T, Problem> {
        if self.depth >= DEPTH_MAX {
            return Err("values nest more than 64 levels deep");
        }
        self.spend(1)?;
        self.depth += 1;
        let outcome = read(self);
        self.depth -= 1;
        outcome
    }
}

fn whole_number<'a>(number: i64, unit: u64) -> Value<'a> {
    u64::try_from(number).map_or(Value::Negative, |number| Value::Unsigned(number / unit))
}

/// Returns the text of a UUID: 32 hex digits with dashes.
fn uuid_text(bytes: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in bytes.into_iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&hex(&[byte]));
    }
    text
}

/// Returns the text of a decimal with `scale` digits after the point.
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
    fn decimals_are_written_with_their_scale() {
        assert_eq!(decimal(&[], 0), "0");
        assert_eq!(decimal(&[0], 2), "0.00");
        assert_eq!(decimal(&[5], 2), "0.05");
        assert_eq!(decimal(&[0xff], 2), "-0.01");
        assert_eq!(decimal(&[0x03, 0xde], 2), "9.90");
        assert_eq!(decimal(&[0x80], 0), "-128");
        assert_eq!(decimal(&[0x7f; 16], 10).len(), 40);
    }
}
