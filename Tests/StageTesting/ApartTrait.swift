package import Testing

/// Marks tests that run in parallel with each other, and after all others.
///
/// This is for tests that act at a certain moment of a program, and would be too late while all processors are busy, and for
/// tests whose programs must begin their work before a deadline of a few seconds. `make test` finds them by this trait
/// (`Scripts/tests-with`), like those with `.alone`.
package struct ApartTrait: TestTrait, SuiteTrait {
    /// The tests of a suite inherit the trait.
    package let isRecursive = true
}

extension Trait where Self == ApartTrait {
    /// Runs the tests apart from those without this trait.
    package static var apart: Self { Self() }
}
