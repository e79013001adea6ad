import Glibc

/// The arguments and variables that a program was started with, as far as they name paths.
///
/// Swift's strings are UTF-8: bytes that are not come mended, and name another file or directory than was meant.
public enum StartText {
    /// An argument or a variable that is not UTF-8.
    public enum Fault: Equatable, Sendable {
        /// The argument of this number, the first one behind the program's name being 1, mended.
        case argument(Int, String)
        /// The variable of this name, and its value, mended.
        case variable(String, String)
    }

    /// Returns the first argument that is not UTF-8, or the first such variable that may name a path.
    public static func fault() -> Fault? {
        // The first one is the program's name.
        for number in 0..<Int(CommandLine.argc) {
            guard let argument = unsafe CommandLine.unsafeArgv[number] else { break }
            if unsafe String(validatingCString: argument) == nil {
                return .argument(number, unsafe String(cString: argument))
            }
        }
        for name in ProcessEnvironment.pathVariables {
            guard let value = unsafe ProcessEnvironment.pointer(to: name) else { continue }
            if unsafe String(validatingCString: value) == nil {
                return .variable("\(name)", unsafe String(cString: value))
            }
        }
        return nil
    }
}

extension StartText.Fault: CustomStringConvertible {
    /// The reason, as a sentence fragment a person can read.
    public var description: String {
        switch self {
        case .argument(let number, let text):
            "expected UTF-8, found argument \(number): '\(text)'"
        case .variable(let name, let text):
            "expected UTF-8, found the variable \(name): '\(text)'"
        }
    }

    /// The one thing to do.
    public var hint: String {
        "rename the file or directory, or name it by a symbolic link whose path is UTF-8"
    }
}
