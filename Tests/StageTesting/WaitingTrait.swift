package import Testing

/// Marks tests that wait for minutes and compute little, such as those of servers that send nothing.
///
/// `make test` runs them beside the others, in a process of their own: there they take no turns from tests that compute.
/// It finds them by this trait (`Scripts/tests-with`), as it does those with `.alone`.
package struct WaitingTrait: TestTrait, SuiteTrait {
    /// The tests of a suite inherit the trait.
    package let isRecursive = true
}

extension Trait where Self == WaitingTrait {
    /// Runs the tests beside those without this trait.
    package static var waiting: Self { Self() }
}
