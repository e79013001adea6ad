package import SystemPackage

extension FilePath.Component {
    /// Creates the component for text that is a file name by its construction, such as an identifier or digits.
    package init(known text: String) {
        guard let component = Self(text) else {
            preconditionFailure("'\(text)' is not a file name")
        }
        self = component
    }
}
