//! Enums with names for files, wire formats and messages. Each list of names is written once.

/// Defines a fieldless enum from a table of variants and names, and serializes it as these names. `ALL` lists the
/// variants, `NAMES` their names in the same order, and `name` returns the name of a variant.
macro_rules! named_enum {
    (
        $(#[$attribute:meta])*
        $visibility:vis enum $enum:ident {
            $($(#[$doc:meta])* $variant:ident = $name:literal,)+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        $visibility enum $enum {
            $($(#[$doc])* #[serde(rename = $name)] $variant,)+
        }

        impl $enum {
            $visibility const NAMES: [&'static str; [$($name),+].len()] = [$($name),+];

            $visibility const ALL: [Self; Self::NAMES.len()] = [$(Self::$variant),+];

            #[must_use]
            $visibility const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

pub(crate) use named_enum;

#[cfg(test)]
mod tests {
    named_enum! {
        enum Fruit {
            Apple = "apple",
            PassionFruit = "passion-fruit",
        }
    }

    #[test]
    fn names_are_the_same_in_files_and_in_messages() {
        assert_eq!(Fruit::NAMES, Fruit::ALL.map(Fruit::name));
        for fruit in Fruit::ALL {
            let written = serde_json::to_value(fruit).unwrap();
            assert_eq!(written, fruit.name());
            assert_eq!(serde_json::from_value::<Fruit>(written).unwrap(), fruit);
        }
        let refused = serde_json::from_value::<Fruit>("pear".into()).unwrap_err().to_string();
        assert_eq!(refused, "unknown variant `pear`, expected `apple` or `passion-fruit`");
    }
}
