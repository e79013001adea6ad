package import Testing

/// Marks tests that run beside each other, and after all others.
///
/// For tests that act at a moment of what programs do, and would come too late where every processor is busy, and for
/// those whose programs have to begin their work before a deadline of a few seconds. `make test` finds them by this trait
/// (`Scripts/tests-with`), as it does those with `.alone`.
package struct ApartTrait: TestTrait, SuiteTrait {
    /// The tests of a suite inherit the trait.
    package let isRecursive = true
}

extension Trait where Self == ApartTrait {
    /// Runs the tests apart from those without this trait.
    package static var apart: Self { Self() }
}
