/// An extension of an application: a program that the system runs to make decisions.
///
/// Has only the part of Apple's protocol that a downloader extension needs: it is created without arguments, and it is the
/// program itself (`@main`).
public protocol AppExtension: SendableMetatype {
    /// Creates the extension; it lives for one message of the host.
    init()
}
